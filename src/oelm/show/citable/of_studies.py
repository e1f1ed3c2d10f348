"""Numbers of a study as a whole: what it is made of, its looks, its bench, and the studies it stands beside."""

from __future__ import annotations

from collections.abc import Iterator

from oelm.analysis.findings import Beside, Findings
from oelm.analysis.looks import cost_of_next_look
from oelm.core.floors import accuracy_standard_error
from oelm.core.intervals import LEVEL
from oelm.core.measures import MEASURES
from oelm.show import numbers, quality
from oelm.show.beside import share_with_one_decimal
from oelm.show.citable.rows import Row, camel, of_difference, of_ratio
from oelm.show.looks import error_spent, levels_by_test, runs_saved
from oelm.show.macro_names import spelled, spelled_out
from oelm.show.tables import finished_final_runs
from oelm.study.kept_looks import open_claims


def rows(findings: Findings) -> Iterator[Row]:
    study, plan, scope = findings.study, findings.plan, findings.scope
    yield "seeds", str(len(study.seeds)), "seeds of each arm, as planned"
    yield "arms", str(len(findings.at_all_sizes)), "arms, at every size"
    yield "claims", str(len(findings.verdicts)), "hypotheses"
    yield "finishedRuns", str(finished_final_runs(findings)), "finished final runs"
    yield "plannedRuns", str(plan.expected_final_runs), "final runs, as planned"
    for name, span in (("parameters", scope.parameters), ("tokens", scope.tokens)):
        what = "parameters of a model" if name == "parameters" else "training tokens of a run"
        yield f"least{name.capitalize()}", numbers.whole(span.least), f"{what}, least over the arms"
        yield f"most{name.capitalize()}", numbers.whole(span.most), f"{what}, most over the arms"
    target = numbers.perplexity(findings.target_perplexity)
    yield "targetPerplexity", target, "perplexity that the times to a target are for"
    for part in ("", "final_", "tuning_"):
        spent = numbers.duration(findings.provenance.get(f"{part}compute_seconds"))
        what = f"{part[:-1] or 'all'} runs"
        yield camel(f"{part}compute_time"), spent, f"computing time of {what} together"
    for step in findings.decomposition:
        about = f"ablation, {step.treatment} against {step.control}"
        for name, text, meaning in of_difference(study.measure, step.difference, about):
            yield camel(step.step, name), text, meaning
    yield from _of_one_accuracy(findings)
    yield from _of_floor(findings)
    yield from _of_looks(findings)
    yield from _of_bench(findings)
    for row in findings.beside:
        yield from _beside(row)


def _of_one_accuracy(findings: Findings) -> Iterator[Row]:
    baseline = findings.arms[findings.study.baseline]
    if findings.study.measure.from_predictions and baseline.quality.mean is not None and baseline.examples:
        error = 100 * accuracy_standard_error(baseline.quality.mean, baseline.examples)
        yield "reportedExamples", numbers.whole(baseline.examples), "examples of the split that is reported"
        yield "accuracyError", f"{error:.2f}", "standard error of one accuracy of the baseline, in percentage points"


def _of_floor(findings: Findings) -> Iterator[Row]:
    floor, measure = findings.arms[findings.study.baseline].floor, findings.study.measure
    if floor is None:
        return
    levels = {"Nothing": floor.learnt_nothing, "Little": floor.learnt_little}
    for (name, level), (reached_by, _) in zip(levels.items(), measure.floor_names, strict=True):
        if level is not None:
            yield f"floorLearnt{name}", quality.value(measure, level), f"{measure.name[0]} that {reached_by} reaches"
    if findings.study.probe is None:
        return
    yield "blindChance", numbers.plain_percent(100 * floor.learnt_nothing), "accuracy of a guess among all answers"
    for difficulty, chance in floor.little_at.items():
        what = f"accuracy of a guess among the answers of the context, at difficulty {difficulty}"
        yield f"contextChanceAt{spelled_out(str(difficulty))}", numbers.plain_percent(100 * chance), what


def _of_looks(findings: Findings) -> Iterator[Row]:
    study, taken = findings.study, findings.looks
    if not study.looks:
        return
    yield "looksTaken", str(len(taken)), "looks that were taken"
    by_test = levels_by_test(study)
    for number, seeds in enumerate(study.looks, start=1):
        at, what = f"AtLook{spelled_out(str(number))}", f"at look {number}"
        yield f"seeds{at}", str(seeds), f"seeds of each arm {what}"
        yield f"errorSpent{at}", numbers.probability(error_spent(study, seeds)), f"error rate spent {what}"
        for test, levels in by_test.items():
            level = numbers.probability(levels[number - 1].at(LEVEL))
            yield camel(*test.split("."), at), level, f"level of the test ({test.partition('.')[2]}) {what}"
    if open_claims(study, taken) and len(taken) < len(study.looks):
        cost = cost_of_next_look(findings.plan, findings.at_all_sizes, taken)
        yield "nextLookRuns", str(cost.runs), "final runs that the next look still needs"
        yield "nextLookFlops", numbers.flops(cost.flops), "their arithmetic"
        yield "nextLookTime", numbers.duration(cost.seconds), "their time, one after another"
    saved = runs_saved(findings)
    yield "savedRuns", str(saved.cost.runs), "final runs that looks made needless"
    yield "savedFlops", numbers.flops(saved.cost.flops), "their arithmetic"
    yield "savedShare", numbers.plain_percent(saved.percent), "their arithmetic, of that of all planned final runs"


def _of_bench(findings: Findings) -> Iterator[Row]:
    bench = findings.provenance.get("bench")
    if bench is None or not bench["fits"] or bench["busy"]:
        return
    yield "benchBlocks", numbers.whole(bench["undisturbed"]), "undisturbed blocks of the bench"
    yield from of_ratio(bench["control"], "of the baseline against itself", name="controlTimeRatio")


def _beside(row: Beside) -> Iterator[Row]:
    """Of another study, or of this one as it stands beside others."""
    if row.problem is not None:
        return
    measure, found = MEASURES[row.measure], list[Row]()
    what = f"of the study {row.study}"
    found.append(("baselineMean", quality.value(measure, row.baseline_quality), f"{measure.name[0]} of the baseline"))
    found.append(("mean", quality.value(measure, row.treatment_quality), f"{measure.name[0]} of {row.treatment}"))
    found += of_difference(measure, row.difference, "from the baseline")
    found += of_ratio(row.ratio, "against the baseline")
    found.append(("trainableShare", share_with_one_decimal(row.trainable_share), "trainable parameters of all"))
    for name, text, meaning in found:
        yield f"{name}Beside{spelled(row.study)}", text, f"{meaning}, {what}"
