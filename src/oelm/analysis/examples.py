"""Two arms example by example: McNemar's test for each pair of runs, from the predictions the runs stored.

It asks whether two trained models differ on these examples; whether the method does, the paired seeds say. Seeds share
the examples, so that their tables are never added up.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from oelm.analysis.arm_summaries import is_finished
from oelm.analysis.findings import McNemar, Verdict
from oelm.analysis.statistics import mcnemar_p
from oelm.study.plan import Plan, PlannedRun

Problems = dict[str, list[int]]  # code of a note -> seeds


def with_examples(plan: Plan, verdict: Verdict) -> tuple[Verdict, list[tuple[str, dict[str, Any]]]]:
    """The verdict with its pairs compared example by example, and notes on those that cannot be."""
    hypothesis = verdict.hypothesis
    if hypothesis.measure != "accuracy":
        return verdict, []
    treatment, control = (
        {run.seed: run for run in plan.by_arm[arm] if is_finished(run)}
        for arm in (hypothesis.treatment, hypothesis.control)
    )
    found, problems = [], Problems()
    for seed in sorted(treatment.keys() & control.keys()):
        compared = _compared(treatment[seed], control[seed])
        if isinstance(compared, str):
            problems.setdefault(compared, []).append(seed)
        else:
            found.append(compared)
    notes = [(code, {"hypothesis": hypothesis.name, "seeds": seeds}) for code, seeds in problems.items()]
    return replace(verdict, mcnemar=found), notes


def _compared(treatment: PlannedRun, control: PlannedRun) -> McNemar | str:
    """The table of one pair; the code of a note where there can be none."""
    one, other = _predictions(treatment), _predictions(control)
    if one is None or other is None:
        return "predictions_missing"
    if (one["split"], one["labels"]) != (other["split"], other["labels"]):
        return "predictions_unlike"
    if not (_agrees(treatment, one) and _agrees(control, other)):
        return "predictions_disagree"
    right = [0, 0, 0, 0]  # both wrong, only the control, only the treatment, both right
    for label, ours, theirs in zip(one["labels"], one["predicted"], other["predicted"], strict=True):
        right[2 * (ours == label) + (theirs == label)] += 1
    return McNemar(treatment.seed, right[3], right[2], right[1], right[0], mcnemar_p(right[2], right[1]))


def _predictions(run: PlannedRun) -> dict[str, Any] | None:
    """None where there are none, or none that make sense."""
    tree = run.stored.predictions if run.stored else {}
    labels, predicted = tree.get("labels"), tree.get("predicted")
    if not isinstance(labels, list) or not isinstance(predicted, list) or not labels or len(labels) != len(predicted):
        return None
    return {"split": tree.get("split"), "labels": labels, "predicted": predicted}


def _agrees(run: PlannedRun, predictions: dict[str, Any]) -> bool:
    """Whether the predictions are those that the run's own accuracy was counted from."""
    labels, predicted = predictions["labels"], predictions["predicted"]
    share = sum(one == other for one, other in zip(labels, predicted, strict=True)) / len(labels)
    stored = (run.stored.result or {}).get("accuracy") if run.stored else None
    return isinstance(stored, int | float) and math.isclose(share, stored, abs_tol=1e-6)
