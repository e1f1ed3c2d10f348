"""Every number of a report that a paper may cite, as a LaTeX macro: numbers.tex, a line for each with what it is.

The numbers are those of the tables, rounded as they are there. What a study does not know yet has no macro, so that a
text that cites it does not compile. A measure is named without the words of show/macro_names.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean, median

from oelm.analysis.findings import (
    ArmSummary,
    Beside,
    Findings,
    Forecast,
    McNemar,
    PairedDifference,
    ProbeSummary,
    Slope,
    SolvedSeeds,
    Verdict,
)  # fmt: skip
from oelm.analysis.looks import cost_of_next_look
from oelm.core.floors import accuracy_standard_error
from oelm.core.intervals import LEVEL
from oelm.core.measures import MEASURES, Measure
from oelm.models.heads.kinds import KINDS as HEAD_KINDS
from oelm.show import numbers, quality
from oelm.show.beside import share_with_one_decimal
from oelm.show.content import COUNTS, gain
from oelm.show.latex import comment, escaped
from oelm.show.looks import error_spent, levels_by_test, runs_saved
from oelm.show.macro_names import Of, macro_name, spelled, spelled_out
from oelm.show.rates import grid_value
from oelm.show.scale import exponent
from oelm.show.tables import counted_bytes, finished_final_runs
from oelm.show.words import say
from oelm.study.bench import Ratio
from oelm.study.kept_looks import open_claims
from oelm.study.scaled import sized_arms


@dataclass(frozen=True)
class Citable:
    measure: str  # first part of the macro's name
    text: str  # as a reader is shown it; numbers.NONE where there is none
    meaning: str  # in English, beside it
    of: Of | None = None
    name: str = ""  # of the arm or the claim

    def macro(self, study: str) -> str:
        return macro_name(self.measure, study, of=self.of, name=self.name)


def numbers_file(findings: Findings) -> str:
    study = findings.study.name
    opening = [
        f"Numbers of the study {study}, written by `oelm report`; it overwrites this file.",
        r"Write \name{} where a space follows. A number that the study does not have yet has no macro.",
    ]
    lines = [comment(opening)]
    for each in citable(findings):
        explained = f"{each.of} {each.name}: {each.meaning}" if each.of else each.meaning
        lines.append(f"\\newcommand{{\\{each.macro(study)}}}{{{escaped(each.text)}}} {comment([explained])}")
    return "\n".join(lines) + "\n"


def citable(findings: Findings) -> Iterator[Citable]:
    """All that are known."""
    found = [Citable(*each) for each in _of_study(findings)]
    for arm, summary in findings.at_all_sizes.items():
        found += [Citable(*each, of="arm", name=arm) for each in _of_arm(findings, summary)]
    found += [Citable(*each, of="arm", name=arm) for arm, each in (*_of_tuning(findings), *_of_sizes(findings))]
    for verdict in findings.verdicts:
        found += [Citable(*each, of="claim", name=verdict.hypothesis.name) for each in _of_claim(findings, verdict)]
    return (each for each in found if each.text != numbers.NONE)


# ---- What several things have: an interval, a difference, a ratio of times ------------------------------------------


Row = tuple[str, str, str]  # measure, text, meaning


def camel(*words: str) -> str:
    first, *others = [part for word in words for part in word.split("_")]
    return first + "".join(each[:1].upper() + each[1:] for each in others)


def with_interval(
    name: str, values: tuple[float | None, float | None, float | None], show: Callable[[float | None], str], what: str
) -> Iterator[Row]:
    """A middle and the two ends of its interval."""
    middle, low, high = values
    yield name, show(middle), what
    yield from ends(name, (low, high), show, what)


def ends(
    name: str, interval: tuple[float | None, float | None], show: Callable[[float | None], str], what: str
) -> Iterator[Row]:
    low, high = interval
    yield f"{name}Low", show(low), f"{what}, lower end of the 95 % interval"
    yield f"{name}High", show(high), f"{what}, upper end of the 95 % interval"


def of_difference(measure: Measure, difference: PairedDifference | None, what: str) -> Iterator[Row]:
    """With its interval; of a logarithm also as it is compared."""
    if difference is None or difference.mean is None:
        return
    unit = "in per cent" if measure.scale.key == "percent" else "in percentage points"
    values = difference.mean, *measure.ends(difference.low, difference.high)
    shown = f"difference in {measure.name[0]} {what}, {unit}, mean over pairs"
    yield from with_interval("difference", values, lambda each: quality.difference(measure, each), shown)
    if measure.scale.is_logarithmic:
        compared = f"difference in loss {what}, in nats, mean over pairs"
        yield from with_interval("logDifference", values, lambda each: quality.logarithm(measure, each), compared)
    yield "pairs", str(len(difference.seeds)), f"pairs of runs of a difference {what}"


def of_ratio(ratio: Ratio | None, what: str, *, name: str = "timeRatio") -> Iterator[Row]:
    if ratio is None:
        return
    values = (ratio.middle, ratio.low, ratio.high)
    yield from with_interval(name, values, numbers.ratio, f"time of a step {what}, a ratio")


# ---- Of a study as a whole: what it is made of, its looks, its bench, the studies it stands beside ------------------


def _of_study(findings: Findings) -> Iterator[Row]:
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
    baseline = findings.arms[study.baseline]
    if study.measure.from_predictions and baseline.quality.mean is not None and baseline.examples:
        error = 100 * accuracy_standard_error(baseline.quality.mean, baseline.examples)
        yield "reportedExamples", numbers.whole(baseline.examples), "examples of the split that is reported"
        yield "accuracyError", f"{error:.2f}", "standard error of one accuracy of the baseline, in percentage points"
    yield from _of_floor(findings)
    yield from _of_looks(findings)
    bench = findings.provenance.get("bench")
    if bench is not None and bench["fits"] and not bench["busy"]:
        yield "benchBlocks", numbers.whole(bench["undisturbed"]), "undisturbed blocks of the bench"
        yield from of_ratio(bench["control"], "of the baseline against itself", name="controlTimeRatio")
    for row in findings.beside:
        yield from _of_another_study(row)


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


def _of_another_study(row: Beside) -> Iterator[Row]:
    """Or of this one as it stands beside others."""
    if row.problem is not None:
        return
    measure = MEASURES[row.measure]
    found = [
        ("baselineMean", quality.value(measure, row.baseline_quality), f"{measure.name[0]} of the baseline"),
        ("mean", quality.value(measure, row.treatment_quality), f"{measure.name[0]} of {row.treatment}"),
        *of_difference(measure, row.difference, "from the baseline"),
        *of_ratio(row.ratio, "against the baseline"),
        ("trainableShare", share_with_one_decimal(row.trainable_share), "trainable parameters of all"),
    ]
    for name, text, meaning in found:
        yield f"{name}Beside{spelled(row.study)}", text, f"{meaning}, of the study {row.study}"


# ---- Of an arm ------------------------------------------------------------------------------------------------------


def _of_arm(findings: Findings, summary: ArmSummary) -> Iterator[Row]:
    # The arms in whose columns its numbers stand: those of its size.
    sized, arms = sized_arms(findings.study), findings.at_all_sizes.values()
    compared = [each for each in arms if not sized or sized[each.arm].size == sized[summary.arm].size]
    measure, own = findings.study.measure, summary.quality
    shown, column = measure.name[0], [each.quality.mean for each in compared]
    yield "mean", quality.value(measure, own.mean, column=column), f"{shown}, mean over seeds"
    spread = own.standard_deviation
    if own.mean is not None and spread is not None:
        both = quality.value(measure, own.mean, spread=spread, column=column)
        yield "deviation", both.partition(" ± ")[2], f"{shown}, standard deviation over seeds"
    yield "meanLoss", numbers.loss(summary.mean_loss), "validation loss in nats, mean over seeds"
    yield "lossDeviation", numbers.loss(summary.standard_deviation), "validation loss, standard deviation over seeds"
    yield from of_difference(measure, own.difference, "against the baseline")
    yield "finishedSeeds", str(len(summary.losses)), "seeds that have finished"
    yield "divergedSeeds", str(len(summary.states.get("diverged", []))), "seeds that diverged"
    yield "learningRate", numbers.learning_rate(summary.learning_rate), "peak learning rate"
    yield from _counts(findings, summary)
    yield from _costs(findings, summary, compared)
    yield from of_ratio(summary.ratio, "against the baseline")
    if findings.target_perplexity is not None and summary.arm in findings.arms:
        reached, in_table = summary.reached, [each.reached.flops for each in compared if each.reached is not None]
        yield "seedsAtTarget", str(reached.seeds if reached else 0), "seeds that reached the target"
        if reached is not None:
            yield "stepsToTarget", numbers.whole(reached.steps), "steps to the target"
            yield "tokensToTarget", numbers.whole(reached.tokens), "training tokens to the target"
            yield "timeToTarget", numbers.duration(reached.seconds), "training time to the target"
            yield "flopsToTarget", numbers.flops(reached.flops, column=in_table), "arithmetic to the target"
    if summary.probe is not None:
        yield from _probe(summary.probe)
    if summary.heads is not None:
        for kind in HEAD_KINDS:
            best = summary.heads.strongest[kind].mean[-1]
            yield f"{kind}Score", numbers.score(best), f"largest score of any head, {kind}, at the last step"


def _counts(findings: Findings, summary: ArmSummary) -> Iterator[Row]:
    for name in ("total", "trainable", "frozen", "implied"):
        yield f"{name}Parameters", numbers.whole(getattr(summary, name)), f"parameters, {name}"
    yield "trainableShare", numbers.share(summary.trainable / summary.total), "trainable parameters of all"
    baseline = findings.arms[findings.study.baseline].trainable
    if summary.arm in findings.arms and summary.trainable != baseline:
        change = numbers.percent(100 * (summary.trainable / baseline - 1))
        yield "trainableChange", change, "trainable parameters against the baseline's"


def _costs(findings: Findings, summary: ArmSummary, compared: list[ArmSummary]) -> Iterator[Row]:
    yield "tokens", numbers.whole(summary.tokens), "training tokens of a run"
    yield "trainingExamples", numbers.whole(summary.training_examples), "training examples of a run"
    in_table = [each.flops for each in compared] if summary.arm in findings.arms else []
    yield "flops", numbers.flops(summary.flops, column=in_table), "arithmetic of a run"
    steps, per_step = [each.seconds_per_step for each in compared], summary.seconds_per_step
    yield "stepTime", numbers.seconds(per_step, column=steps), "mean time of a step"
    yield "stepsPerHour", numbers.whole(3600 / per_step if per_step else None), "steps in an hour"
    of_columns = zip(*map(counted_bytes, compared), strict=True)
    names = {
        "weightMemory": "memory of the weights, counted",
        "gradientMemory": "memory of the gradients, counted",
        "optimizerMemory": "memory of the optimizer, counted",
        "countedMemory": "memory of weights, gradients and optimizer, counted",
        "memory": "largest memory of a run",
    }
    for (name, meaning), own, column in zip(names.items(), counted_bytes(summary), of_columns, strict=True):
        yield name, numbers.memory(own, column=column), meaning


def _probe(probe: ProbeSummary) -> Iterator[Row]:
    yield "validateEvery", numbers.whole(probe.validate_every), "steps between two validations"
    for difficulty in dict.fromkeys(each for of_seed in probe.by_difficulty.values() for each in of_seed):
        mean = fmean(of_seed[difficulty] for of_seed in probe.by_difficulty.values() if difficulty in of_seed)
        name = f"accuracyAt{spelled_out(difficulty)}"
        yield name, numbers.share(mean), f"accuracy at difficulty {difficulty}, mean over seeds"
    for solved in probe.solving:
        yield from _solved(solved)


def _solved(solved: SolvedSeeds) -> Iterator[Row]:
    level, difficulty = f"{100 * solved.criterion.level:g}", solved.criterion.difficulty
    name = spelled_out(level if difficulty is None else f"{level}-{difficulty}")
    where = "" if difficulty is None else f" at difficulty {difficulty}"
    yield f"runsSolvedAt{name}", str(len(solved.steps)), f"runs with an accuracy of {level} % or more{where}"
    yield f"runsEndedAt{name}", str(solved.runs), f"runs that have ended, solved{where} or not"
    if steps := solved.steps:
        solving = f"steps to an accuracy of {level} %{where}"
        yield f"stepsToSolveAt{name}", numbers.to_half(median(steps)), f"{solving}, median of the runs that solve it"
        yield f"fewestStepsToSolveAt{name}", numbers.whole(steps[0]), f"{solving}, fewest"
        yield f"mostStepsToSolveAt{name}", numbers.whole(steps[-1]), f"{solving}, most"


# ---- Of tuning, by arm: what each value gave, what a round dropped, the fitted optimum ------------------------------


def _of_tuning(findings: Findings) -> Iterator[tuple[str, Row]]:
    for done in findings.plan.rounds:
        at, what = f"AtRound{spelled_out(str(done.number))}", f"in round {done.number} of halving"
        yield done.arm, (f"tuningSteps{at}", numbers.whole(done.steps), f"steps of a tuning run {what}")
        yield done.arm, (f"keptValues{at}", str(len(done.kept)), f"values of the grid that went on {what}")
        for point, behind in done.behind.items():
            if math.isfinite(behind):
                value = grid_value(point)
                above = f"loss of {value} above the best {what}, in nats, without the seed that says so most"
                yield done.arm, (f"gap{at}Value{spelled_out(value)}", numbers.nats(behind), above)
    for arm, choice in findings.plan.choices.items():
        for point, loss in choice.losses.items():
            value = grid_value(point)
            at = f"AtValue{spelled_out(value)}"
            what = f"validation loss of tuning with {value}, mean over seeds"
            yield arm, (f"tuningLoss{at}", numbers.loss(loss), what)
            if point in choice.solving:
                solved, steps = choice.solving[point]
                share = numbers.plain_percent(100 * solved)
                yield arm, (f"tuningSolved{at}", share, f"tuning seeds that solve the probe with {value}")
                yield arm, (f"tuningSteps{at}", numbers.whole(steps), f"steps to it with {value}")
        yield arm, ("tuningLoss", numbers.loss(choice.loss), "validation loss of tuning, of the chosen value")
        if (curve := choice.curve) is not None:
            yield arm, ("bestTriedRate", numbers.learning_rate(curve.best), "best value of the grid")
            yield arm, ("optimalRate", numbers.learning_rate(curve.optimum), "fitted optimum of the learning rate")


# ---- Of arms at all of their sizes ----------------------------------------------------------------------------------


def _of_sizes(findings: Findings) -> Iterator[tuple[str, Row]]:
    """With the arm that each is of."""
    measure, scale = findings.study.measure, findings.scale
    if scale is None:
        return
    for trend in scale.trends:
        for per, slope in trend.slopes.items():
            name, where = f"Over{spelled(str(trend.dial))}Per{per.capitalize()}", f", over {trend.dial}"
            for row in of_slope(measure, slope, per, name=f"slope{name}", where=where):
                yield trend.treatment, row
            yield trend.treatment, (f"sizes{name}", str(slope.sizes), f"sizes that the slope rests on{where}")
    for law in scale.laws:
        name, what = f"exponentOver{spelled(law.dial)}", f"exponent of the loss against training FLOPs, over {law.dial}"
        yield law.arm, (name, exponent(law.exponent), what)
        for row in ends(name, (law.low, law.high), numbers.nats, what):
            yield law.arm, row
    for each in scale.multipliers:
        budget = f"At{spelled_out(f'{each.tokens:.0f}')}"
        for count, ratio in (("Tokens", 1.0), ("Flops", each.flops_ratio)):
            what = f"times the {count.lower()} for the loss of the baseline after {each.tokens:,.0f} tokens"
            what += ", an extrapolation" if each.is_beyond else ""
            low, high = (None if end is None else end * ratio for end in (each.low, each.high))
            values = each.ratio * ratio, low, high
            for row in with_interval(f"times{count}{budget}", values, numbers.times, what):
                yield each.treatment, row
        yield each.treatment, (f"budgets{budget}", str(each.budgets), "budgets that it rests on")
    for forecast in scale.forecasts:
        for row in _forecast(measure, forecast):
            yield forecast.treatment, row


def of_slope(measure: Measure, slope: Slope, per: str, *, name: str = "slope", where: str = "") -> Iterator[Row]:
    values = slope.slope, *measure.ends(slope.low, slope.high)
    what = f"change of the difference with every doubling of {per}{where}"
    yield from with_interval(name, values, lambda each: quality.difference(measure, each), what)


def _forecast(measure: Measure, forecast: Forecast) -> Iterator[Row]:
    def shown(of_costs: float | None) -> str:
        return quality.difference(measure, of_costs)

    predicted, left_out, at = forecast.predicted, forecast.left_out, f"At{spelled(forecast.size)}"
    if predicted is None or not quality.is_telling(measure, predicted):
        return
    values = predicted.middle, *measure.ends(predicted.low, predicted.high)
    what = f"forecast of the difference from the baseline at {forecast.size}"
    yield from with_interval(f"forecast{at}", values, shown, what)
    yield f"forecastSizes{at}", numbers.whole(forecast.sizes), f"sizes that the {what} rests on"
    count = numbers.spoken(round(predicted.counts["parameters"]))
    yield f"forecastParameters{at}", count, f"parameters at {forecast.size}"
    if left_out is not None:
        check = f"the same at {left_out.size}, left out of the line"
        yield from ends(f"checked{at}", measure.ends(left_out.low, left_out.high), shown, check)
        yield f"observed{at}", shown(forecast.observed), f"difference that was observed at {left_out.size}"


# ---- Of a claim -----------------------------------------------------------------------------------------------------


def _of_claim(findings: Findings, verdict: Verdict) -> Iterator[Row]:
    hypothesis, measure = verdict.hypothesis, verdict.hypothesis.quality
    yield "outcome", say("en", f"outcome.{verdict.outcome}"), "the verdict"
    yield from of_difference(measure, verdict.difference, "between treatment and control")
    if verdict.margin:
        yield "margin", quality.FORMATS[measure.scale.key].margin(hypothesis.margin or 0.0), "margin as stated"
        if measure.scale.is_logarithmic:
            yield "logMargin", f"{verdict.margin:.4f}", "margin in nats"
    if "bound" in verdict.facts:
        bound = quality.FORMATS[measure.scale.key].difference(verdict.facts["bound"])
        yield "bound", bound, "the one-sided bound that decides"
    yield "p", numbers.probability(verdict.p), "p, one-sided, not adjusted"
    yield "adjustedP", numbers.probability(verdict.p_adjusted), "p, adjusted by Holm over the confirmatory claims"
    yield "signFlipP", numbers.probability(verdict.sign_flip_p), "p of the exact sign-flip test"
    yield "refutationP", numbers.probability(verdict.refutation_p), "p of a refuted claim that it holds, not adjusted"
    yield "sequentialP", numbers.probability(verdict.sequential_p if verdict.look else None), "p over all looks"
    yield from _allowances(verdict)
    if (ratio := verdict.ratio) is not None:
        yield from of_ratio(ratio, "of the treatment against the control")
        yield "timeBlocks", numbers.whole(ratio.blocks), "blocks of the bench that the ratio rests on"
        if ratio.is_implausible:
            yield "smallestTimeRatio", numbers.ratio(ratio.smallest), "smallest ratio that arithmetic allows"
    if hypothesis.evidence == "parameters":
        treatment, control = (findings.at_all_sizes[arm] for arm in (hypothesis.treatment, hypothesis.control))
        change = numbers.percent(100 * (treatment.trainable / control.trainable - 1))
        yield "trainableChange", change, "trainable parameters of the treatment against the control's"
    if (pairs := verdict.sign_test or verdict.pairs_so_far) is not None:
        for name in ("ahead", "behind", "tied"):
            yield f"{name}Pairs", str(len(getattr(pairs, name))), f"pairs in which the treatment is {name}"
        yield "neitherPairs", str(len(pairs.neither)), "pairs in which neither solves it"
        yield "solvingPairs", str(pairs.pairs), "pairs of runs that have ended"
    if verdict.trend is not None:
        whole = sum(point.is_whole for point in verdict.trend.points)
        yield "sizes", str(whole), "sizes at which every pair is complete"
        if (slope := verdict.trend.slopes.get(verdict.trend.per)) is not None:
            yield from of_slope(measure, slope, verdict.trend.per)
    for pair in verdict.mcnemar:
        yield from _examples(pair)


def _allowances(verdict: Verdict) -> Iterator[Row]:
    """For the rates of the arms; of a contrast, at the size that it is about."""
    rates, claim = verdict.rates, verdict.hypothesis
    for side, arm in (("Treatment", claim.treatment), ("Control", claim.control)):
        if rates is not None and arm in rates.arms:
            shown = quality.in_direction(claim.quality, rates.arms[arm], is_cost=True)
            yield f"rateAllowance{side}", shown, f"what the rate of the {side.lower()} may cost"
    if verdict.allowance is not None:
        shown = quality.in_direction(claim.quality, verdict.allowance, is_cost=True)
        yield "rateAllowance", shown, "rate allowance of the bound that decides"


def _examples(pair: McNemar) -> Iterator[Row]:
    """Of one pair of runs, by its seed."""
    at, what = f"AtSeed{spelled_out(str(pair.seed))}", f"of the pair of seed {pair.seed}"
    for count in COUNTS:
        first, second = count.split("_")
        name = f"{first}{second.capitalize()}Examples{at}"
        yield name, numbers.whole(getattr(pair, count)), f"examples, {_WHO_IS_RIGHT[count]}, {what}"
    yield f"accuracyGain{at}", numbers.points(gain(pair)), f"difference in accuracy, in percentage points, {what}"
    yield f"mcnemarP{at}", numbers.probability(pair.p), f"McNemar's p, exact, two-sided, {what}"


_WHO_IS_RIGHT = {
    "both_right": "both right",
    "treatment_only": "only the treatment right",
    "control_only": "only the control right",
    "both_wrong": "both wrong",
}
