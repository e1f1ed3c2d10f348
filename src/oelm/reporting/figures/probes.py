"""Accuracy of a probe over its difficulties, beside the two levels of chance."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from oelm.reporting.figures.canvas import GREY, Canvas
from oelm.reporting.words import in_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def by_difficulty(canvas: Canvas) -> Figure | None:
    """Where an arm breaks: nothing to see where there is one difficulty."""
    probe = canvas.findings.study.probe
    found = {arm: canvas.findings.arms[arm].probe for arm in canvas.arms}
    values = {arm: list(each.by_difficulty.values()) for arm, each in found.items() if each and each.by_difficulty}
    if probe is None or len(probe.difficulties) < 2 or not values:
        return None
    figure, (axis,) = canvas.panels(1, height=3.0)
    names = [str(difficulty) for difficulty in probe.difficulties]
    places = list(range(len(names)))
    for arm, seeds in values.items():
        look = canvas.look(arm)
        columns = [[100 * seed[name] for seed in seeds] for name in names]
        axis.fill_between(places, [*map(min, columns)], [*map(max, columns)], color=look.colour, alpha=0.15, lw=0)
        axis.plot(places, [*map(fmean, columns)], color=look.colour, ls=look.line, marker=look.marker)
    chances = [100 * chance for chance in probe.chances_in_context.values()]
    if chances:
        axis.plot(places, chances, color=GREY, ls="--", lw=0.9)
        axis.annotate(canvas.word("probe.in_context"), (places[0], chances[0]), (2, 3), textcoords="offset points")
    axis.axhline(100 * probe.blind_chance, color=GREY, ls=":", lw=0.9)
    last = (places[-1], 100 * probe.blind_chance)
    axis.annotate(canvas.word("probe.blind"), last, (-2, 3), textcoords="offset points", ha="right")
    axis.set_xticks(places, names)
    axis.set_ylim(-2, 102)
    axis.set_xlabel(in_words(probe.task.dial_words, canvas.language))
    axis.set_ylabel(canvas.word("axis.value"))
    canvas.arm_legend(figure, list(values))
    return figure
