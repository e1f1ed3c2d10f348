"""Numbers of an arm."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median

from oelm.analysis.findings import ArmSummary, Findings, ProbeSummary, Reached, SolvedSeeds
from oelm.models.heads.kinds import KINDS as HEAD_KINDS
from oelm.show import numbers, quality
from oelm.show.citable.rows import Row, of_difference, of_ratio
from oelm.show.macro_names import spelled_out
from oelm.show.tables import counted_bytes
from oelm.study.scaled import sized_arms


def rows(findings: Findings, summary: ArmSummary) -> Iterator[Row]:
    measure, own, compared = findings.study.measure, summary.quality, _beside(findings, summary)
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
        yield "seedsAtTarget", str(summary.reached.seeds if summary.reached else 0), "seeds that reached the target"
        if summary.reached is not None:
            yield from _reached(summary.reached, [each.reached.flops for each in compared if each.reached is not None])
    if summary.probe is not None:
        yield from _probe(summary.probe)
    if summary.heads is not None:
        for kind in HEAD_KINDS:
            best = summary.heads.strongest[kind].mean[-1]
            yield f"{kind}Score", numbers.score(best), f"largest score of any head, {kind}, at the last step"


def _beside(findings: Findings, summary: ArmSummary) -> list[ArmSummary]:
    """The arms in whose columns its numbers stand: those of its size."""
    sized = sized_arms(findings.study)
    arms = findings.at_all_sizes.values()
    return [each for each in arms if not sized or sized[each.arm].size == sized[summary.arm].size]


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


def _reached(reached: Reached, column: list[float]) -> Iterator[Row]:
    yield "stepsToTarget", numbers.whole(reached.steps), "steps to the target"
    yield "tokensToTarget", numbers.whole(reached.tokens), "training tokens to the target"
    yield "timeToTarget", numbers.duration(reached.seconds), "training time to the target"
    yield "flopsToTarget", numbers.flops(reached.flops, column=column), "arithmetic to the target"


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
