"""Two arms example by example: McNemar's test for each pair of runs, from the predictions the runs stored.

It asks whether two trained models differ on these examples; whether the method does, the paired seeds say. Seeds share
the examples, so that their tables are never added up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oelm.analysis.arm_summaries import is_finished
from oelm.analysis.findings import McNemar, Verdict
from oelm.analysis.statistics import mcnemar_p
from oelm.study.plan import Plan, PlannedRun, paired

Problems = dict[str, list[int]]  # code of a note -> seeds


def with_examples(plan: Plan, verdict: Verdict) -> tuple[Verdict, list[tuple[str, dict[str, Any]]]]:
    """The verdict with its pairs compared example by example, and notes on those that cannot be."""
    hypothesis = verdict.hypothesis
    measure = hypothesis.quality
    if not measure.from_predictions or hypothesis.evidence in ("scale", "contrast"):
        return verdict, []
    treatment, control = (
        [run for run in plan.by_arm[arm] if is_finished(run, measure)]
        for arm in (hypothesis.treatment, hypothesis.control)
    )
    found, problems = [], Problems()
    for one, other in paired(treatment, control):
        compared = _compared(one, other)
        if isinstance(compared, str):
            problems.setdefault(compared, []).append(one.seed)
        else:
            found.append(compared)
    notes = [(code, {"hypothesis": hypothesis.name, "seeds": seeds}) for code, seeds in problems.items()]
    return replace(verdict, mcnemar=found), notes


def _compared(treatment: PlannedRun, control: PlannedRun) -> McNemar | str:
    """The table of one pair; the code of a note where there can be none."""
    one, other = _predictions(treatment), _predictions(control)
    if one is None or other is None:
        return "predictions_missing"
    if (one.get("split"), one["labels"]) != (other.get("split"), other["labels"]):
        return "predictions_unlike"
    right = [0, 0, 0, 0]  # both wrong, only the control, only the treatment, both right
    for label, ours, theirs in zip(one["labels"], one["predicted"], other["predicted"], strict=True):
        right[2 * (ours == label) + (theirs == label)] += 1
    return McNemar(
        treatment.seed,
        right[3],
        right[2],
        right[1],
        right[0],
        mcnemar_p(right[2], right[1]),
    )


def _predictions(run: PlannedRun) -> dict[str, Any] | None:
    """None where an older run stored none."""
    return (run.stored.predictions or None) if run.stored else None
