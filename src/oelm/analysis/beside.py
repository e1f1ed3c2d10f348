"""Studies side by side: what this one and its neighbours say of their main frozen arm against their baseline.

A neighbour that is missing or cannot be read is a row that says so, never the end of a report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from oelm.analysis.findings import ArmSummary, Beside, Findings, Scope, ScopedVerdict, Span, Verdict
from oelm.machine.errors import UserError
from oelm.storage.files import RUNS
from oelm.study.archives import runs_folder
from oelm.study.declaration import Hypothesis, Neighbour, Study, in_language
from oelm.study.reading import load_study
from oelm.study.registration import as_it_began
from oelm.study.scaled import arms_compared
from oelm.study.shelf import Shelf

SIZES = ("num_layers", "d_model", "num_heads", "vocabulary", "pretrained")

FindingsOf = Callable[[Study, Shelf], Findings]


def side_by_side(findings: Findings, findings_of: FindingsOf) -> list[Beside]:
    """This study, then its neighbours; nothing if it names none and quotes nobody."""
    study = findings.study
    if not study.beside and not study.reported:
        return []
    return [row_of(findings), *(_neighbour(each, findings_of) for each in study.beside)]


def _neighbour(neighbour: Neighbour, findings_of: FindingsOf) -> Beside:
    try:
        study = load_study(neighbour.study).model_copy(update={"beside": []})  # neighbours of neighbours are not asked
        folder = runs_folder(Path(neighbour.runs) if neighbour.runs else RUNS / study.name)
        if not folder.is_dir():
            return Beside(study.name, problem=f"{folder}: no such folder")
        return row_of(findings_of(as_it_began(study, folder), Shelf(folder)))
    except (UserError, OSError) as error:
        return Beside(Path(neighbour.study).stem, problem=" ".join(str(error).split()))


def row_of(findings: Findings) -> Beside:
    study, treatment = findings.study, findings.main_arm
    arm, baseline = findings.arms[treatment], findings.arms[study.baseline]
    label = study.arms[treatment].label or treatment
    run = next((run.run for run in findings.plan.runs if run.arm == treatment), None)
    return Beside(
        study=study.name,
        measure=study.measure.key,
        fine_tunes=study.fine_tunes,
        model={name: getattr(run.model, name) for name in SIZES if hasattr(run.model, name)} if run else {},
        data=arm.data,
        scope=scope_of(study, [baseline, arm]),
        baseline=study.baseline,
        treatment=treatment,
        label=(in_language(label, "en"), in_language(label, "zh")),
        baseline_quality=baseline.quality.mean,
        treatment_quality=arm.quality.mean,
        difference=arm.quality.difference,
        outcomes={
            each.hypothesis.name: each.outcome
            for each in findings.verdicts
            if compares(each.hypothesis, treatment, study) and each.hypothesis.evidence == "quality"
        },
        ratio=arm.ratio,
        trainable_share=arm.trainable / arm.total,
    )


def compares(hypothesis: Hypothesis, treatment: str, study: Study) -> bool:
    """Whether it is about this arm and the baseline."""
    return (hypothesis.treatment, hypothesis.control) == (treatment, study.baseline)


# ---- Scope -----------------------------------------------------------------------------------------------------------


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
