"""Everything a study's stored runs say, as findings and as the JSON of analysis_results.json."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel

from oelm.analysis.arm_summaries import ArmRuns, arm_summary, is_finished, perplexity, runs_by_arm, target_perplexity
from oelm.analysis.beside import compares, side_by_side
from oelm.analysis.examples import with_examples
from oelm.analysis.findings import ArmSummary, Decomposition, Findings, PairedDifference, Verdict
from oelm.analysis.hypotheses import margin_of, nats, verdicts
from oelm.analysis.notes import notes
from oelm.analysis.provenance import provenance
from oelm.analysis.speed import bench_ratio
from oelm.analysis.statistics import LEAST_PAIRS, paired_difference
from oelm.arms import ARMS
from oelm.errors import UserError
from oelm.study.confounds import confounds
from oelm.study.declaration import QUALITY_KINDS, Study
from oelm.study.plan import Plan, PlannedRun, planned
from oelm.study.shelf import Shelf

FORMAT_VERSION = 1
MAIN_ARM = "frozen_head_orthogonal"
USUAL_MARGIN_PERCENT = 5.0
USUAL_MARGIN_POINTS = 1.0
# The documents' ablation: code -> treatment and control as named arms; None is the study's baseline.
STEPS: dict[str, tuple[str, str | None]] = {
    "baseline_to_frozen": (MAIN_ARM, None),
    "baseline_to_random": ("frozen_normal", None),
    "baseline_to_scaled_random": ("frozen_scaled_normal", None),
    "random_to_orthogonal": (MAIN_ARM, "frozen_normal"),
    "scaled_random_to_orthogonal": (MAIN_ARM, "frozen_scaled_normal"),
}
# The same for a model that comes with weights: what freezing costs, what losing the learnt directions costs, ...
PRETRAINED_STEPS: dict[str, tuple[str, str | None]] = {
    "baseline_to_frozen_pretrained": ("frozen_pretrained", None),
    "pretrained_to_orthogonalised": ("frozen_orthogonalised", "frozen_pretrained"),
    "orthogonalised_to_fresh": (MAIN_ARM, "frozen_orthogonalised"),
    "baseline_to_frozen": (MAIN_ARM, None),
    "random_to_orthogonal": (MAIN_ARM, "frozen_normal"),
    "scaled_random_to_orthogonal": (MAIN_ARM, "frozen_scaled_normal"),
}


def findings_of(study: Study, shelf: Shelf) -> Findings:
    """Everything the runs of a study say, and what its neighbours say beside it."""
    findings = _findings_alone(study, shelf)
    return replace(findings, beside=side_by_side(findings, _findings_alone))


def _findings_alone(study: Study, shelf: Shelf) -> Findings:
    plan = planned(study, shelf)
    runs = runs_by_arm(study, plan, shelf)
    if not all(arm.run.model.is_resolved for arm in runs.values()):
        raise UserError(f"{shelf.folder}: no run of the study {study.name} is there yet; start it with `oelm run`")
    ratio_of = partial(bench_ratio, shelf.bench())
    baseline = runs[study.baseline]
    target = target_perplexity(study, baseline)
    arms = {arm: arm_summary(plan, each, baseline, target=target, ratio_of=ratio_of) for arm, each in runs.items()}
    settled = verdicts(plan, arms, ratio_of=ratio_of, confounds=confounds(study, plan))
    compared = [with_examples(plan, each) for each in settled]
    main_arm = _main_arm(study, runs)
    return Findings(
        study=study,
        plan=plan,
        arms=arms,
        verdicts=[verdict for verdict, _ in compared],
        decomposition=list(_decomposition(study, runs, arms)),
        target_perplexity=target,
        main_arm=main_arm,
        scenario=_scenario(study, main_arm, arms, settled),
        unfinished=[run for run in plan.runs if not is_finished(run)],
        provenance=provenance(study, plan),
        notes=[*notes(study, plan, shelf, runs), *(note for _, on_examples in compared for note in on_examples)],
    )


# ---- The documents' questions --------------------------------------------------------------------------------------


def _arm_like(runs: dict[str, ArmRuns], name: str) -> str | None:
    """The arm whose attention is that of a named one, whatever the study calls it."""
    return next((arm for arm, each in runs.items() if each.run.model.attention == ARMS[name]), None)


def _main_arm(study: Study, runs: dict[str, ArmRuns]) -> str:
    return _arm_like(runs, MAIN_ARM) or next((each.treatment for each in study.hypotheses), study.baseline)


def _decomposition(study: Study, runs: dict[str, ArmRuns], arms: dict[str, ArmSummary]) -> Iterator[Decomposition]:
    for code, (treatment_name, control_name) in (PRETRAINED_STEPS if study.classifies else STEPS).items():
        treatment = _arm_like(runs, treatment_name)
        control = study.baseline if control_name is None else _arm_like(runs, control_name)
        if treatment is None or control is None or treatment == control:
            continue
        one, other = arms[treatment], arms[control]
        difference = (
            paired_difference(one.errors, other.errors)
            if study.classifies
            else paired_difference(one.losses, other.losses)
        )
        if difference.seeds:
            yield Decomposition(code, treatment, control, difference)


def _scenario(
    study: Study, treatment: str, arms: dict[str, ArmSummary], settled: list[Verdict]
) -> Literal["better", "equal", "worse", "unknown"]:
    """Of the main frozen arm against the baseline. A study that is partial or confounded there recommends nothing."""
    difference = against_baseline(study, arms[treatment])
    whole = all(set(arms[arm].losses) == set(study.seeds) for arm in (treatment, study.baseline))
    confounded = any(_is_about(each, treatment, study) and each.outcome == "confounded" for each in settled)
    if difference is None or difference.low is None or difference.high is None:
        return "unknown"
    if not whole or confounded or len(difference.seeds) < LEAST_PAIRS:
        return "unknown"
    margin = _margin(study, treatment)
    if difference.high < 0:
        return "better"
    if -margin < difference.low and difference.high < margin:
        return "equal"
    return "worse" if difference.low > margin else "unknown"


def _is_about(verdict: Verdict, treatment: str, study: Study) -> bool:
    hypothesis = verdict.hypothesis
    return compares(hypothesis, treatment, study) and hypothesis.kind in QUALITY_KINDS


def _margin(study: Study, treatment: str) -> float:
    """That of the claim about these arms, or else of the first one; in the units of a difference in quality."""
    claims = [each for each in study.hypotheses if each.kind == "not_worse"]
    claims.sort(key=lambda each: not compares(each, treatment, study))
    usual = USUAL_MARGIN_POINTS / 100 if study.classifies else nats(USUAL_MARGIN_PERCENT)
    return margin_of(claims[0]) if claims else usual


def against_baseline(study: Study, arm: ArmSummary) -> PairedDifference | None:
    """In quality: of error rates where the runs classify, else of losses."""
    return arm.error_difference if study.classifies else arm.difference


# ---- JSON ----------------------------------------------------------------------------------------------------------


def findings_as_json(findings: Findings) -> dict[str, Any]:
    """For analysis_results.json: every number finite, null where there is none."""
    plan, study = findings.plan, findings.study
    target = {} if study.classifies else {"target_perplexity": findings.target_perplexity}
    return _plain(
        {
            "format_version": FORMAT_VERSION,
            "study": study,
            "scenario": findings.scenario,
            **target,
            "verdicts": findings.verdicts,
            "arms": {name: _arm(study, arm) for name, arm in findings.arms.items()},
            "decomposition": findings.decomposition,
            "tuning": {"grid": plan.grid, "arms": {arm: _tuning(plan, arm) for arm in plan.choices}},
            "unfinished": [_unfinished(run) for run in findings.unfinished],
            "provenance": findings.provenance,
            "notes": [{"code": code, **facts} for code, facts in findings.notes],
            **({"beside": findings.beside} if findings.beside else {}),
        }
    )


_OF_CLASSIFICATION = (
    "batch_size", "training_examples", "accuracies", "accuracy", "accuracy_deviation", "examples", "error_difference",
    "accuracy_curve",
)  # fmt: skip


def _arm(study: Study, arm: ArmSummary) -> dict[str, Any]:
    """What another kind of study has is left out."""
    tree = _plain(arm)
    if study.classifies:
        return {key: value for key, value in tree.items() if key != "reached"}
    kept = {key: value for key, value in tree.items() if key not in _OF_CLASSIFICATION}
    return kept | {"perplexity": None if arm.mean_loss is None else perplexity(arm.mean_loss)}


def _tuning(plan: Plan, arm: str) -> dict[str, Any]:
    choice = plan.choices[arm]
    points = [{"values": dict(point), "val_loss": loss} for point, loss in sorted(choice.losses.items())]
    return {"chosen": choice.values or None, "edges": choice.edges, "points": points}


def _unfinished(run: PlannedRun) -> dict[str, Any]:
    status = run.stored.status if run.stored else {}
    return {
        "arm": run.arm,
        "seed": run.seed,
        "stage": run.stage,
        "values": dict(run.point),
        "state": run.state,
        "step": status.get("step"),
        "error": status.get("error"),
        "directory": run.stored.name if run.stored else None,
    }


def _plain(value: Any) -> Any:
    """What JSON can hold."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(mode="json"))
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
