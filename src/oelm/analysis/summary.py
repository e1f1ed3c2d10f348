"""Everything a study's stored runs say, as findings and as the JSON of analysis_results.json."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel

from oelm.analysis.arm_summaries import ArmRuns, arm_summary, is_finished, perplexity, runs_by_arm, target_perplexity
from oelm.analysis.findings import ArmSummary, Decomposition, Findings, Verdict
from oelm.analysis.hypotheses import LOSS_KINDS, nats, verdicts
from oelm.analysis.notes import notes
from oelm.analysis.provenance import provenance
from oelm.analysis.speed import bench_ratio
from oelm.analysis.statistics import LEAST_PAIRS, paired_difference
from oelm.arms import ARMS
from oelm.errors import UserError
from oelm.study.confounds import confounds
from oelm.study.declaration import Study
from oelm.study.plan import Plan, PlannedRun, planned
from oelm.study.shelf import Shelf

FORMAT_VERSION = 1
MAIN_ARM = "frozen_head_orthogonal"
USUAL_MARGIN_PERCENT = 5.0
# The documents' ablation: code -> treatment and control as named arms; None is the study's baseline.
STEPS: dict[str, tuple[str, str | None]] = {
    "baseline_to_frozen": (MAIN_ARM, None),
    "baseline_to_random": ("frozen_normal", None),
    "baseline_to_scaled_random": ("frozen_scaled_normal", None),
    "random_to_orthogonal": (MAIN_ARM, "frozen_normal"),
    "scaled_random_to_orthogonal": (MAIN_ARM, "frozen_scaled_normal"),
}


def findings_of(study: Study, shelf: Shelf) -> Findings:
    plan = planned(study, shelf)
    runs = runs_by_arm(study, plan, shelf)
    if not all(arm.run.model.is_resolved for arm in runs.values()):
        raise UserError(f"{shelf.folder}: no run of the study {study.name} is there yet; start it with `oelm run`")
    ratio_of = partial(bench_ratio, shelf.bench())
    baseline = runs[study.baseline]
    target = target_perplexity(study, baseline)
    arms = {arm: arm_summary(plan, each, baseline, target=target, ratio_of=ratio_of) for arm, each in runs.items()}
    settled = verdicts(plan, arms, ratio_of=ratio_of, confounds=confounds(study, plan))
    return Findings(
        study=study,
        plan=plan,
        arms=arms,
        verdicts=settled,
        decomposition=list(_decomposition(study, runs)),
        target_perplexity=target,
        scenario=_scenario(study, runs, arms, settled),
        unfinished=[run for run in plan.runs if not is_finished(run)],
        provenance=provenance(study, plan),
        notes=notes(study, plan, shelf, runs),
    )


# ---- The documents' questions --------------------------------------------------------------------------------------


def _arm_like(runs: dict[str, ArmRuns], name: str) -> str | None:
    """The arm whose attention is that of a named one, whatever the study calls it."""
    return next((arm for arm, each in runs.items() if each.run.model.attention == ARMS[name]), None)


def _decomposition(study: Study, runs: dict[str, ArmRuns]) -> Iterator[Decomposition]:
    for code, (treatment_name, control_name) in STEPS.items():
        treatment = _arm_like(runs, treatment_name)
        control = study.baseline if control_name is None else _arm_like(runs, control_name)
        if treatment is None or control is None or treatment == control:
            continue
        difference = paired_difference(runs[treatment].losses, runs[control].losses)
        if difference.seeds:
            yield Decomposition(code, treatment, control, difference)


def _scenario(
    study: Study, runs: dict[str, ArmRuns], arms: dict[str, ArmSummary], settled: list[Verdict]
) -> Literal["better", "equal", "worse", "unknown"]:
    """Of the main frozen arm against the baseline. A study that is partial or confounded there recommends nothing."""
    treatment = _arm_like(runs, MAIN_ARM) or next((each.treatment for each in study.hypotheses), study.baseline)
    difference = arms[treatment].difference
    whole = all(set(arms[arm].losses) == set(study.seeds) for arm in (treatment, study.baseline))
    confounded = any(_is_about(each, treatment, study) and each.outcome == "confounded" for each in settled)
    if difference is None or difference.low is None or difference.high is None:
        return "unknown"
    if not whole or confounded or len(difference.seeds) < LEAST_PAIRS:
        return "unknown"
    margin = nats(_first_margin(study))
    if difference.high < 0:
        return "better"
    if -margin < difference.low and difference.high < margin:
        return "equal"
    return "worse" if difference.low > margin else "unknown"


def _is_about(verdict: Verdict, treatment: str, study: Study) -> bool:
    hypothesis = verdict.hypothesis
    return (hypothesis.treatment, hypothesis.control) == (treatment, study.baseline) and hypothesis.kind in LOSS_KINDS


def _first_margin(study: Study) -> float:
    margins = (each.margin_percent for each in study.hypotheses if each.kind == "not_worse")
    return next((margin for margin in margins if margin), USUAL_MARGIN_PERCENT)


# ---- JSON ----------------------------------------------------------------------------------------------------------


def findings_as_json(findings: Findings) -> dict[str, Any]:
    """For analysis_results.json: every number finite, null where there is none."""
    plan = findings.plan
    return _plain(
        {
            "format_version": FORMAT_VERSION,
            "study": findings.study,
            "scenario": findings.scenario,
            "target_perplexity": findings.target_perplexity,
            "verdicts": findings.verdicts,
            "arms": {name: _with_perplexity(arm) for name, arm in findings.arms.items()},
            "decomposition": findings.decomposition,
            "tuning": {"grid": plan.grid, "arms": {arm: _tuning(plan, arm) for arm in plan.choices}},
            "unfinished": [_unfinished(run) for run in findings.unfinished],
            "provenance": findings.provenance,
            "notes": [{"code": code, **facts} for code, facts in findings.notes],
        }
    )


def _with_perplexity(arm: ArmSummary) -> dict[str, Any]:
    return _plain(arm) | {"perplexity": None if arm.mean_loss is None else perplexity(arm.mean_loss)}


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
