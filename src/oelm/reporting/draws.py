"""How many draws of random parts a claim rests on; where a seed has several, how much draws and seeds vary."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from functools import partial

from oelm.analysis.findings import Component, Findings
from oelm.claims.measures import Measure
from oelm.reporting import numbers, quality
from oelm.reporting.article import Block, Heading, Paragraph, Table, words_then_numbers
from oelm.reporting.scope import scope_line
from oelm.reporting.tables import label_of
from oelm.reporting.words import say, say_of
from oelm.study.declaration import Language
from oelm.study.one_run import is_drawn


def draws(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    """A remark on the results where every seed has one draw, a section of its own where seeds have several."""
    study = findings.study
    if study.draws > 1:
        yield Heading(say(language, "heading.draws"))
    drawn = {arm: is_drawn(study, arm, summary.values) for arm, summary in findings.arms.items()}
    counts: dict[int, list[str]] = {}  # finished seeds -> arms
    for arm, summary in findings.arms.items():
        if drawn[arm] and summary.losses:
            counts.setdefault(len(summary.losses), []).append(arm)
    code = "draws.several" if study.draws > 1 else "draws.one"
    for seeds, arms in counts.items():
        facts = {"seeds": seeds, "draws": study.draws, "total": seeds * study.draws}
        yield Paragraph(say(language, code, arms=_labels(findings, arms, language), **facts), tone="note")
    if study.draws > 1:
        undrawn = [arm for arm in findings.arms if not drawn[arm]]
        if undrawn:
            yield Paragraph(say(language, "draws.undrawn", arms=_labels(findings, undrawn, language)))
        yield from _components(findings, language)


def _labels(findings: Findings, arms: list[str], language: Language) -> str:
    return say(language, "list_semicolon").join(label_of(findings, arm, language) for arm in arms)


def _components(findings: Findings, language: Language) -> Iterator[Block]:
    study = findings.study
    found = {arm: each.draw_variance for arm, each in findings.arms.items() if each.draw_variance is not None}
    if not found:
        yield Paragraph(say(language, "draws.none"))
        return
    rows = [
        [
            label_of(findings, arm, language),
            f"{each.seeds} × {each.draws}",
            _deviation(findings, each.between_draws),
            _deviation(findings, each.between_seeds),
        ]
        for arm, each in found.items()
    ]
    columns = ("arm", "draws", "between_draws", "between_seeds")
    header = [say(language, f"column.{name}") for name in columns]
    unit = say(language, f"unit.compared.{study.measure.scale.key}")
    caption = say_of(study, language, "draws.table", scope=scope_line(findings.scope, language), compared=unit)
    yield Table(caption, header, rows, words_then_numbers(len(columns)))
    unclear = [arm for arm, each in found.items() if each.between_seeds and not each.between_seeds.is_above_zero]
    if unclear:
        yield Paragraph(say(language, "draws.unclear", arms=_labels(findings, unclear, language)), tone="note")


def _deviation(findings: Findings, component: Component | None) -> str:
    """The square root of a variance, in the unit of what is compared, with its interval."""
    if component is None:
        return numbers.NONE
    shown = partial(deviation, findings.study.measure)
    middle = shown(component.variance)
    return middle if component.low is None else f"{middle} {numbers.interval(component.low, component.high, shown)}"


def deviation(measure: Measure, variance: float | None) -> str:
    return numbers.NONE if variance is None else quality.FORMATS[measure.scale.key].deviation(math.sqrt(variance))
