"""How far a result reaches: the size of the models and what one run reads, counted from the configs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from oelm.analysis.findings import ArmSummary, Scope, ScopedVerdict, Span, Verdict
from oelm.study.declaration import Study
from oelm.study.scaled import arms_compared


def scope_of(study: Study, arms: Sequence[ArmSummary]) -> Scope:
    """Of a comparison of these arms."""
    examples = [arm.training_examples for arm in arms if arm.training_examples is not None]
    return Scope(
        parameters=_span(arm.total for arm in arms),
        tokens=_span(arm.tokens for arm in arms),
        examples=_span(examples) if examples else None,
        data=list(dict.fromkeys(arm.data for arm in arms)),
        stated=study.scope,
    )


def with_scope(study: Study, arms: dict[str, ArmSummary], verdict: Verdict) -> ScopedVerdict:
    """The verdict with the scope of the arms it is about, whatever the others are."""
    pairs = arms_compared(study, verdict.hypothesis)
    compared = [arms[arm] for treatment, control in pairs for arm in (control, treatment)]
    return ScopedVerdict(**vars(verdict), scope=scope_of(study, compared))


def _span(values: Iterable[int]) -> Span:
    ordered = sorted(values)
    return Span(ordered[0], ordered[-1])
