"""The section on a probe: what it asks, what a guess is worth, where each arm breaks, and who solves it when."""

from __future__ import annotations

from collections.abc import Container, Iterator
from statistics import median

from oelm.analysis.findings import Findings
from oelm.core.floors import Floor
from oelm.core.probes.probe import Probe
from oelm.core.solving import Criterion
from oelm.show import numbers
from oelm.show.article import Block, Heading, Paragraph, Picture, Table
from oelm.show.tables import captioned, label_of, table
from oelm.show.verdicts import solved_phrase
from oelm.show.words import in_words, say
from oelm.study.declaration import Language
from oelm.study.tuning import point_text

COLUMNS = ("arm", "solved", "steps_to_solve", "steps_range", "validated_every")


def probes(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    """With a table for every accuracy that the study calls solved."""
    probe = findings.study.probe
    if probe is None:
        return
    yield Heading(say(language, "heading.probe"))
    yield Paragraph(_chance(probe, findings.arms[findings.study.baseline].floor, language))
    if "by_difficulty" in figures:
        yield Picture("by_difficulty", say(language, "caption.by_difficulty"))
    if "steps_to_solve" in figures:
        solved = solved_phrase(findings.study.criteria[0], language)
        yield Picture("steps_to_solve", say(language, "caption.steps_to_solve", solved=solved))
    for criterion in findings.study.criteria:
        yield _table(findings, criterion, language)


def _chance(probe: Probe, floor: Floor | None, language: Language) -> str:
    """What the task is, and the two levels of its floor."""
    assert floor is not None  # that of a probe is known without a run
    in_context = ", ".join(f"{each}: {numbers.plain_percent(100 * chance)}" for each, chance in floor.little_at.items())
    code = "probe.chances" if in_context else "probe.chance"
    task, dial = (in_words(phrase, language) for phrase in (probe.task.words, probe.task.dial_words))
    blind = numbers.plain_percent(100 * floor.learnt_nothing)
    return say(language, code, task=task, source=probe.task.source, dial=dial, blind=blind, in_context=in_context)


def _table(findings: Findings, criterion: Criterion, language: Language) -> Table:
    rows = []
    for arm, summary in findings.arms.items():
        if summary.probe is not None:  # solved n of m, and of the n: the median step and the range
            seeds = summary.probe.solving_by(criterion)
            steps, shown = seeds.steps, [numbers.NONE] * 2
            if steps:
                shown = [numbers.to_half(median(steps)), f"{numbers.whole(steps[0])} – {numbers.whole(steps[-1])}"]
            every = numbers.whole(summary.probe.validate_every)
            rows.append([label_of(findings, arm, language), f"{len(steps)}/{seeds.runs}", *shown, every])
    caption = captioned(findings, language, "solving.table", solved=solved_phrase(criterion, language))
    return table(findings, language, COLUMNS, rows, caption)


# ---- Tuning --------------------------------------------------------------------------------------------------------

TUNING_COLUMNS = ("arm", "point", "tuning_solved", "tuning_steps", "tuning_loss")


def tuning_table(findings: Findings, language: Language) -> Table:
    """Every point of the grid, where points are ranked by solving."""
    rows = []
    for arm, choice in findings.plan.choices.items():
        if arm not in findings.arms:
            continue
        for point, (solved, steps) in sorted(choice.solving.items()):
            values = point_text(point) + (" *" if point == choice.best else "")
            numbers_of = [numbers.plain_percent(100 * solved), numbers.whole(steps), numbers.loss(choice.losses[point])]
            rows.append([label_of(findings, arm, language), values, *numbers_of])
    caption = captioned(findings, language, "solving.tuning_table")
    return table(findings, language, TUNING_COLUMNS, rows, caption, words=2)
