"""Everything a study's stored runs say, as findings and as the JSON of analysis_results.json."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import BaseModel

from oelm.analysis.arm_summaries import ArmRuns, arm_summary, is_finished, runs_by_arm, target_perplexity
from oelm.analysis.beside import scope_of, side_by_side, with_scope
from oelm.analysis.findings import ArmSummary, Beside, Decomposition, Findings, Scale, Verdict
from oelm.analysis.hypotheses import of_all_seeds, verdicts
from oelm.analysis.looks import looks_taken, next_look, verdicts_by_looks
from oelm.analysis.notes import notes, with_examples, with_reservations
from oelm.analysis.provenance import provenance
from oelm.analysis.scale import scale_of
from oelm.analysis.speed import SpeedOf, bench_provenance, speed
from oelm.analysis.spending import interval_level, t_levels, union_levels
from oelm.analysis.statistics import paired_difference
from oelm.core.arms import arm as named_arm
from oelm.core.config import facts_of, kind_of_model
from oelm.core.intervals import LEVEL
from oelm.core.logarithms import exponential
from oelm.core.measures import LOSS, SCALES
from oelm.machine.errors import UserError
from oelm.run.directory import unmeasured
from oelm.study.bench_fit import bench_for
from oelm.study.confounds import confounds
from oelm.study.declaration import OF_PROBES, OF_SIZES, Study, as_declared
from oelm.study.departures import departures_of
from oelm.study.halving import Round
from oelm.study.kept_looks import Look
from oelm.study.plan import Plan, PlannedRun, planned
from oelm.study.scaled import at_main_size, compared_with
from oelm.study.shelf import Shelf

FORMAT_VERSION = 1
MAIN_ARM = "frozen_head_orthogonal"
# The ablation: code -> treatment and control as named arms; None is the study's baseline.
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
    findings = findings_alone(study, shelf)
    return replace(findings, beside=side_by_side(findings, findings_alone))


def look_at(plan: Plan, shelf: Shelf) -> Look | None:
    """The look after those that are stored; None where a run that it needs lacks its numbers."""
    runs = _runs_by_arm(plan, shelf)
    return next_look(plan, _summaries(plan, runs, partial(speed, None, plan.study.name)), plan.looks)


def _runs_by_arm(plan: Plan, shelf: Shelf) -> dict[str, ArmRuns]:
    runs = runs_by_arm(plan.study, plan)
    if runs is None:
        raise UserError(f"{shelf.folder}: no runs of the study {plan.study.name} yet; start it with `oelm run`")
    return runs


def _summaries(
    plan: Plan, runs: dict[str, ArmRuns], speed_of: SpeedOf, *, with_curves: bool = True
) -> dict[str, ArmSummary]:
    found = {}
    for arm, each in runs.items():
        baseline = runs[compared_with(plan.study, arm)]
        target = target_perplexity(plan.study, baseline)
        found[arm] = arm_summary(plan, each, baseline, target=target, speed_of=speed_of, with_curves=with_curves)
    return found


def findings_alone(study: Study, shelf: Shelf, *, with_curves: bool = True) -> Findings:
    """Without its neighbours; and without curves, which cost more than all the rest, where nobody draws them."""
    plan = planned(study, shelf)
    runs = _runs_by_arm(plan, shelf)
    bench = bench_for(plan, shelf)
    speed_of = partial(speed, bench, study.name)
    everywhere = _summaries(plan, runs, speed_of, with_curves=with_curves)
    looks = looks_taken(plan, everywhere) if study.looks else ()
    on_pairs = partial(verdicts_by_looks, looks) if study.looks else of_all_seeds
    settled = verdicts(plan, everywhere, speed_of=speed_of, confounds=confounds(study, plan), on_pairs=on_pairs)
    departures = departures_of(plan, shelf)
    compared = [with_examples(plan, with_reservations(plan, departures, everywhere, each)) for each in settled]
    arms = {arm: everywhere[arm] for arm in at_main_size(study)}
    all_runs, runs = runs, {arm: runs[arm] for arm in arms}
    treated = (each.treatment for each in study.hypotheses if each.treatment in runs)
    return Findings(
        study=study,
        plan=plan,
        arms=arms,
        scope=scope_of(study, list(arms.values())),
        verdicts=[with_scope(study, everywhere, verdict) for verdict, _ in compared],
        decomposition=list(_decomposition(study, runs, arms)),
        target_perplexity=target_perplexity(study, all_runs[study.baseline]),
        main_arm=_arm_like(runs, MAIN_ARM) or next(treated, study.baseline),
        unfinished=[run for run in plan.runs if not is_finished(run, study.measure) and run.state != "not_needed"],
        looks=looks,
        provenance=provenance(study, plan, shelf) | {"bench": bench_provenance(bench)},
        notes=[
            *notes(study, plan, shelf, all_runs, everywhere, bench),
            *(note for _, on_examples in compared for note in on_examples),
        ],
        scale=scale_of(study, everywhere, facts_of(runs[study.baseline].run.model)),
    )


# ---- The main frozen arm -------------------------------------------------------------------------------------------


def _arm_like(runs: dict[str, ArmRuns], name: str) -> str | None:
    """The arm whose parts are those of a named one, whatever the study calls it."""
    models = {arm: each.run.model for arm, each in runs.items()}
    alike = (arm for arm, model in models.items() if model.parts == named_arm(name, kind=kind_of_model(model)).parts)
    return next(alike, None)


def _decomposition(study: Study, runs: dict[str, ArmRuns], arms: dict[str, ArmSummary]) -> Iterator[Decomposition]:
    for code, (treatment_name, control_name) in (PRETRAINED_STEPS if study.fine_tunes else STEPS).items():
        treatment = _arm_like(runs, treatment_name)
        control = study.baseline if control_name is None else _arm_like(runs, control_name)
        if treatment is None or control is None or treatment == control:
            continue
        costs = arms[treatment].quality.costs, arms[control].quality.costs
        pairs = len(costs[0].keys() & costs[1].keys())
        difference = paired_difference(*costs, level=interval_level(study.looks, pairs))
        if difference.seeds:
            yield Decomposition(code, treatment, control, difference)


# ---- JSON ----------------------------------------------------------------------------------------------------------


def findings_as_json(findings: Findings) -> dict[str, Any]:
    """For analysis_results.json: every number finite, null where there is none."""
    plan, study = findings.plan, findings.study
    # What looks, probes and sizes need only where it has some.
    of_study: dict[str, Any] = _of_its_kind(study, _plain(study)) or {}
    of_study["hypotheses"] = [_of_its_kind(study, each) for each in of_study["hypotheses"]]
    of_study["tuning"] = of_study["tuning"] and _of_its_kind(study, as_declared(of_study["tuning"]))
    target = {"target_perplexity": findings.target_perplexity} if study.measure.has_target else {}
    tree: dict[str, Any] = _plain(
        {
            "format_version": FORMAT_VERSION,
            "study": {key: value for key, value in of_study.items() if key != "looks" or study.looks},
            "scope": findings.scope,
            **target,
            "verdicts": [_verdict(study, verdict) for verdict in findings.verdicts],
            "arms": {name: _arm(study, arm) for name, arm in findings.arms.items()},
            "decomposition": findings.decomposition,
            "tuning": {
                "grid": plan.grid,
                **({"rounds": [_round(done) for done in plan.rounds]} if plan.rounds else {}),
                "arms": {arm: _tuning(plan, arm) for arm in plan.choices},
            },
            **({"looks": [_look(plan, look) for look in findings.looks]} if study.looks else {}),
            "unfinished": [_unfinished(study, run) for run in findings.unfinished],
            "provenance": findings.provenance,
            "notes": [{"code": code, **facts} for code, facts in findings.notes],
            **({"beside": [_beside(row) for row in findings.beside]} if findings.beside else {}),
            **({"scale": _scale(study, findings.scale)} if findings.scale else {}),
        }
    )
    return tree


def _of_its_kind(study: Study, part: dict[str, Any] | None) -> dict[str, Any] | None:
    """A study, a claim or the tuning without what another kind of study has."""
    others = (*(() if study.probes else OF_PROBES), *(() if study.sizes else OF_SIZES))
    return part and {key: value for key, value in part.items() if key not in others}


def _verdict(study: Study, verdict: Verdict) -> dict[str, Any]:
    """Under the names of its measure and scale, which other programs know."""
    measure, tree = verdict.hypothesis.quality, _plain(verdict)
    tree["hypothesis"] = _of_its_kind(study, tree["hypothesis"])
    left_out = {key for key in ("sign_test", "pairs_so_far", "trend", "rates") if tree[key] is None}
    left_out |= {"look", "sequential_p"} if verdict.look is None else set()
    tree |= {"doubt": verdict.doubt} if verdict.doubt else {}
    tree = {key: value for key, value in tree.items() if key not in left_out}
    tree["reservations"] = [{"code": code, **facts} for code, facts in verdict.reservations]
    scale = measure.scale
    if "difference" in verdict.facts:
        of_scale = {key: f"{key}_{scale.key}" for key in ("margin", "bound", "median")} | {"difference": scale.key}
        tree["facts"] = {of_scale.get(name, name): value for name, value in tree["facts"].items()}
        tree["reason"] = measure.names.reason_prefix + verdict.reason
    margins = {each.stored_margin: tree["margin"] if each is scale else None for each in SCALES}
    return _with_in_place_of(tree, "margin", margins)


def _with_in_place_of(tree: dict[str, Any], key: str, entries: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= entries if name == key else {name: value}
    return found


def _arm(study: Study, arm: ArmSummary) -> dict[str, Any]:
    """What another kind of study has is left out."""
    measure, tree = study.measure, _plain(arm)
    left_out = {"quality", "examples"}
    left_out |= set() if measure.has_target else {"reached"}
    left_out |= set() if study.fine_tunes else {"batch_size", "training_examples"}
    left_out |= {name for name in ("heads", "probe") if getattr(arm, name) is None}
    kept = {key: value for key, value in tree.items() if key not in left_out}
    if measure is LOSS:
        return kept | {"perplexity": _plain(None if arm.mean_loss is None else exponential(arm.mean_loss))}
    names, quality = measure.names, arm.quality
    of_measure = {
        names.values: quality.values,
        names.mean: quality.mean,
        names.deviation: quality.standard_deviation,
        **({"examples": arm.examples} if study.fine_tunes else {}),
        names.difference: quality.difference,
        names.curve: quality.curve,
    }
    return kept | {key: _plain(value) for key, value in of_measure.items()}


def _scale(study: Study, scale: Scale) -> dict[str, Any]:
    """All of it, and of the arms what is not in `arms` already."""
    main = at_main_size(study)
    tree: dict[str, Any] = _plain(scale)
    return tree | {"arms": {name: _arm(study, arm) for name, arm in scale.arms.items() if name not in main}}


def _beside(row: Beside) -> dict[str, Any]:
    """A study that fine-tunes is one that classifies, to whoever reads the file."""
    tree = {key: value for key, value in _plain(row).items() if key != "measure"}
    return _with_in_place_of(tree, "fine_tunes", {"classifies": row.fine_tunes})


def _tuning(plan: Plan, arm: str) -> dict[str, Any]:
    choice = plan.choices[arm]
    points = [
        {"values": dict(point), "val_loss": loss} | (choice.solving[point]._asdict() if choice.solving else {})
        for point, loss in sorted(choice.losses.items())
    ]
    stored = {"stored": choice.made, "final_runs_then": choice.final_runs_then if choice.made else None}
    fitted = {"curve": choice.curve, "not_fitted": choice.not_fitted} if choice.curve or choice.not_fitted else {}
    carried = {"carried": choice.carried} if choice.carried else {}
    about = {"chosen": choice.values or None, **stored, "edges": choice.edges, "points": points}
    return about | fitted | carried


def _round(done: Round) -> dict[str, Any]:
    points = [
        {"values": dict(point), "val_loss": done.losses[point], "behind": behind, "went_on": point in done.kept}
        for point, behind in done.behind.items()
    ]
    about = {"arm": done.arm, "round": done.number, "steps": done.steps, "margin": done.margin, "stored": done.made}
    return about | {"points": points}


def _look(plan: Plan, look: Look) -> dict[str, Any]:
    """What a look found of each claim that was open; the numbers of what it settled are those of the verdicts."""
    looks = tuple(plan.study.looks)
    of_t, of_exact = (levels(looks)[look.number - 1].at(LEVEL) for levels in (t_levels, union_levels))
    claims = {
        name: {"outcome": each.verdict.outcome, "settled": each.is_settled, "sequential_p": each.sequential_p}
        for name, each in look.claims.items()
    }
    levels_there = {"level_of_t": of_t, "level_of_exact": of_exact}
    return {"look": look.number, "seeds": look.seeds, "stored": look.made, **levels_there, "claims": claims}


def _unfinished(study: Study, run: PlannedRun) -> dict[str, Any]:
    status = run.stored.status if run.stored else {}
    lack = unmeasured(run.stored.result, study.measure) if run.stored and run.stored.result else None
    return {
        "arm": run.arm,
        "seed": run.seed,
        "stage": run.stage,
        "values": dict(run.point),
        "state": run.state,
        "step": status.get("step"),
        "error": lack or (run.stored.error if run.stored else None),
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
