"""Every number of a report that a paper may cite, as a LaTeX macro: numbers.tex.

The numbers are those of the tables, rounded as they are there. What a study does not know yet has no macro, so that a
text that cites it does not compile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean, median

from oelm.analysis.findings import (
    ArmSummary,
    Component,
    Findings,
    PairedDifference,
    ProbeSummary,
    Reached,
    Scale,
    Slope,
    SolvedSeeds,
    Verdict,
)
from oelm.claims.measures import Measure
from oelm.heads.kinds import KINDS as HEAD_KINDS
from oelm.reporting import numbers, quality
from oelm.reporting.draws import deviation
from oelm.reporting.latex import comment, escaped
from oelm.reporting.macro_names import Of, macro_name, spelled, spelled_out
from oelm.reporting.scale import exponent
from oelm.reporting.tables import finished_final_runs
from oelm.reporting.words import say
from oelm.study.bench import Ratio
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
    lines = [
        f"\\newcommand{{\\{each.macro(study)}}}{{{escaped(each.text)}}} {comment([_explained(each)])}"
        for each in citable(findings)
    ]
    return "\n".join([comment(opening), *lines]) + "\n"


def _explained(each: Citable) -> str:
    return f"{each.of} {each.name}: {each.meaning}" if each.of else each.meaning


def citable(findings: Findings) -> Iterator[Citable]:
    """All that are known."""
    found = [*_of_study(findings)]
    for arm, summary in findings.at_all_sizes.items():
        found += [Citable(*each, of="arm", name=arm) for each in _of_arm(findings, summary)]
    if findings.scale is not None:
        found += [Citable(*each, of="arm", name=arm) for arm, each in _of_scale(findings.study.measure, findings.scale)]
    for verdict in findings.verdicts:
        found += [Citable(*each, of="claim", name=verdict.hypothesis.name) for each in _of_claim(verdict)]
    return (each for each in found if each.text != numbers.NONE)


Row = tuple[str, str, str]  # measure, text, meaning


def _of_study(findings: Findings) -> Iterator[Citable]:
    study, plan, scope = findings.study, findings.plan, findings.scope
    yield Citable("seeds", str(len(study.seeds)), "seeds of each arm, as planned")
    yield Citable("arms", str(len(findings.at_all_sizes)), "arms, at every size")
    yield Citable("claims", str(len(findings.verdicts)), "hypotheses")
    yield Citable("finishedRuns", str(finished_final_runs(findings)), "finished final runs")
    yield Citable("plannedRuns", str(plan.expected_final_runs), "final runs, as planned")
    for name, span in (("parameters", scope.parameters), ("tokens", scope.tokens)):
        what = "parameters of a model" if name == "parameters" else "training tokens of a run"
        yield Citable(f"least{name.capitalize()}", numbers.whole(span.least), f"{what}, least over the arms")
        yield Citable(f"most{name.capitalize()}", numbers.whole(span.most), f"{what}, most over the arms")
    target = numbers.perplexity(findings.target_perplexity)
    yield Citable("targetPerplexity", target, "perplexity that the times to a target are for")
    for part in ("", "final_", "tuning_"):
        spent = numbers.duration(findings.provenance.get(f"{part}compute_seconds"))
        what = f"{part[:-1] or 'all'} runs"
        yield Citable(_camel(f"{part}compute_time"), spent, f"computing time of {what} together")
    for step in findings.decomposition:
        about = f"ablation, {step.treatment} against {step.control}"
        for name, text, meaning in _difference(study.measure, step.difference, about):
            yield Citable(f"{_camel(step.step)}{name[0].upper()}{name[1:]}", text, meaning)


def _camel(code: str) -> str:
    first, *others = code.split("_")
    return first + "".join(each.capitalize() for each in others)


# ---- Arms ----------------------------------------------------------------------------------------------------------


def _of_arm(findings: Findings, summary: ArmSummary) -> Iterator[Row]:
    study, own = findings.study, summary.quality
    measure, shown, compared = study.measure, study.measure.name[0], _beside(findings, summary)
    column = [each.quality.mean for each in compared]
    yield "mean", quality.value(measure, own.mean, column=column), f"{shown}, mean over seeds"
    spread = own.standard_deviation
    if own.mean is not None and spread is not None:
        both = quality.value(measure, own.mean, spread=spread, column=column)
        yield "deviation", both.partition(" ± ")[2], f"{shown}, standard deviation over seeds"
    yield "meanLoss", numbers.loss(summary.mean_loss), "validation loss in nats, mean over seeds"
    yield "lossDeviation", numbers.loss(summary.standard_deviation), "validation loss, standard deviation over seeds"
    yield from _difference(measure, own.difference, "against the baseline")
    yield "finishedSeeds", str(len(summary.losses)), "seeds that have finished"
    yield "divergedSeeds", str(len(summary.states.get("diverged", []))), "seeds that diverged"
    yield "learningRate", numbers.learning_rate(summary.learning_rate), "peak learning rate"
    for name in ("total", "trainable", "frozen", "implied"):
        yield f"{name}Parameters", numbers.whole(getattr(summary, name)), f"parameters, {name}"
    yield "trainableShare", numbers.share(summary.trainable / summary.total), "trainable parameters of all"
    yield "tokens", numbers.whole(summary.tokens), "training tokens of a run"
    in_table = [each.flops for each in compared] if summary.arm in findings.arms else []
    yield "flops", numbers.flops(summary.flops, column=in_table), "arithmetic of a run"
    steps = [each.seconds_per_step for each in compared]
    yield "stepTime", numbers.seconds(summary.seconds_per_step, column=steps), "mean time of a step"
    memory = [each.peak_memory_bytes for each in compared]
    yield "memory", numbers.memory(summary.peak_memory_bytes, column=memory), "largest memory of a run"
    yield from _ratio(summary.ratio, "against the baseline")
    if summary.reached is not None and summary.arm in findings.arms:
        yield from _reached(summary.reached, [each.reached.flops for each in compared if each.reached is not None])
    if summary.probe is not None:
        yield from _probe(summary.probe)
    if summary.draw_variance is not None:
        yield from _component(measure, "Draws", summary.draw_variance.between_draws)
        yield from _component(measure, "Seeds", summary.draw_variance.between_seeds)
    if summary.heads is not None:
        for kind in HEAD_KINDS:
            best = summary.heads.strongest[kind].mean[-1]
            yield f"{kind}Score", numbers.score(best), f"largest score of any head, {kind}, at the last step"


def _beside(findings: Findings, summary: ArmSummary) -> list[ArmSummary]:
    """The arms in whose columns its numbers stand: those of its size."""
    sized = sized_arms(findings.study)
    arms = findings.at_all_sizes.values()
    return [each for each in arms if not sized or sized[each.arm].size == sized[summary.arm].size]


def _reached(reached: Reached, column: list[float]) -> Iterator[Row]:
    yield "seedsAtTarget", str(reached.seeds), "seeds that reached the target"
    yield "stepsToTarget", numbers.whole(reached.steps), "steps to the target"
    yield "tokensToTarget", numbers.whole(reached.tokens), "training tokens to the target"
    yield "timeToTarget", numbers.duration(reached.seconds), "training time to the target"
    yield "flopsToTarget", numbers.flops(reached.flops, column=column), "arithmetic to the target"


def _component(measure: Measure, between: str, component: Component | None) -> Iterator[Row]:
    if component is None:
        return
    what = f"standard deviation between {between.lower()}"
    yield f"between{between}", deviation(measure, component.variance), what
    yield f"between{between}Low", deviation(measure, component.low), f"{what}, lower end of the 95 % interval"
    yield f"between{between}High", deviation(measure, component.high), f"{what}, upper end of the 95 % interval"


def _probe(probe: ProbeSummary) -> Iterator[Row]:
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


def _difference(measure: Measure, difference: PairedDifference | None, what: str) -> Iterator[Row]:
    """With its interval; of a logarithm also as it is compared."""
    if difference is None or difference.mean is None:
        return
    unit = "in per cent" if measure.scale.key == "percent" else "in percentage points"
    low, high = measure.ends(difference.low, difference.high)
    shown = f"difference in {measure.name[0]} {what}, {unit}"
    yield "difference", quality.difference(measure, difference.mean), f"{shown}, mean over pairs"
    yield "differenceLow", quality.difference(measure, low), f"{shown}, lower end of the 95 % interval"
    yield "differenceHigh", quality.difference(measure, high), f"{shown}, upper end of the 95 % interval"
    if measure.scale.is_logarithmic:
        compared = f"difference in loss {what}, in nats"
        yield "logDifference", quality.logarithm(measure, difference.mean), f"{compared}, mean over pairs"
        yield "logDifferenceLow", quality.logarithm(measure, low), f"{compared}, lower end of the 95 % interval"
        yield "logDifferenceHigh", quality.logarithm(measure, high), f"{compared}, upper end of the 95 % interval"
    yield "pairs", str(len(difference.seeds)), f"pairs of runs of a difference {what}"


def _ratio(ratio: Ratio | None, what: str) -> Iterator[Row]:
    if ratio is None:
        return
    yield "timeRatio", numbers.ratio(ratio.middle), f"time of a step {what}, a ratio"
    yield "timeRatioLow", numbers.ratio(ratio.low), "its 95 % interval, lower end"
    yield "timeRatioHigh", numbers.ratio(ratio.high), "its 95 % interval, upper end"


# ---- Scale ---------------------------------------------------------------------------------------------------------


def _of_scale(measure: Measure, scale: Scale) -> Iterator[tuple[str, Row]]:
    """Of arms at all of their sizes."""
    for trend in scale.trends:
        for per, slope in trend.slopes.items():
            for name, text, meaning in _slope(measure, slope, per):
                where = f"Over{spelled(str(trend.dial))}Per{per.capitalize()}"
                yield trend.treatment, (name.replace("slope", f"slope{where}"), text, f"{meaning}, over {trend.dial}")
    for law in scale.laws:
        what = f"exponent of the loss against training FLOPs, over {law.dial}"
        ends = {"": exponent(law.exponent), "Low": numbers.nats(law.low), "High": numbers.nats(law.high)}
        for end, text in ends.items():
            yield law.arm, (f"exponentOver{spelled(law.dial)}{end}", text, f"{what}{_END[end]}")
    for each in scale.multipliers:
        budget = f"At{spelled_out(f'{each.tokens:.0f}')}"
        for count, ratio in (("Tokens", 1.0), ("Flops", each.flops_ratio)):
            what = f"times the {count.lower()} for the loss of the baseline after {each.tokens:,.0f} tokens"
            what += ", an extrapolation" if each.is_beyond else ""
            for end, value in (("", each.ratio), ("Low", each.low), ("High", each.high)):
                text = numbers.times(None if value is None else value * ratio)
                yield each.treatment, (f"times{count}{budget}{end}", text, f"{what}{_END[end]}")
    for forecast in scale.forecasts:
        if (predicted := forecast.predicted) is not None:
            low, high = measure.ends(predicted.low, predicted.high)
            what = f"forecast of the difference from the baseline at {forecast.size}"
            for end, value in (("", predicted.middle), ("Low", low), ("High", high)):
                name = f"forecastAt{spelled(forecast.size)}{end}"
                yield forecast.treatment, (name, quality.difference(measure, value), f"{what}{_END[end]}")


_END = {"": "", "Low": ", lower end of the 95 % interval", "High": ", upper end of the 95 % interval"}


# ---- Claims --------------------------------------------------------------------------------------------------------


def _of_claim(verdict: Verdict) -> Iterator[Row]:
    measure = verdict.hypothesis.quality
    yield "outcome", say("en", f"outcome.{verdict.outcome}"), "the verdict"
    yield from _difference(measure, verdict.difference, "between treatment and control")
    if verdict.margin:
        yield "margin", quality.FORMATS[measure.scale.key].margin(verdict.hypothesis.margin or 0.0), "margin as stated"
    if "bound" in verdict.facts:
        bound = quality.FORMATS[measure.scale.key].difference(verdict.facts["bound"])
        yield "bound", bound, "the one-sided bound that decides"
    yield "p", numbers.probability(verdict.p), "p, one-sided, not adjusted"
    yield "adjustedP", numbers.probability(verdict.p_adjusted), "p, adjusted by Holm over the confirmatory claims"
    yield "signFlipP", numbers.probability(verdict.sign_flip_p), "p of the exact sign-flip test"
    yield "sequentialP", numbers.probability(verdict.sequential_p if verdict.look else None), "p over all looks"
    yield "seedsNeeded", numbers.whole(verdict.seeds_needed), "paired seeds that would probably decide it"
    yield from _ratio(verdict.ratio, "of the treatment against the control")
    if (test := verdict.sign_test) is not None:
        for name, seeds in (("ahead", test.ahead), ("behind", test.behind), ("tied", test.tied)):
            yield f"{name}Pairs", str(len(seeds)), f"pairs in which the treatment is {name}"
        yield "neitherPairs", str(len(test.neither)), "pairs in which neither solves it"
        yield "pairsNeeded", numbers.whole(test.pairs_needed), "informative pairs that would probably decide it"
    if verdict.trend is not None and (slope := verdict.trend.slopes.get(verdict.trend.per)) is not None:
        yield from _slope(measure, slope, verdict.trend.per)


def _slope(measure: Measure, slope: Slope, per: str) -> Iterator[Row]:
    low, high = measure.ends(slope.low, slope.high)
    what = f"change of the difference with every doubling of {per}"
    yield "slope", quality.difference(measure, slope.slope), what
    yield "slopeLow", quality.difference(measure, low), f"{what}, lower end of the 95 % interval"
    yield "slopeHigh", quality.difference(measure, high), f"{what}, upper end of the 95 % interval"
