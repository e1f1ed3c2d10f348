"""How values were tuned, beyond a grid: which of them each round of halving dropped, and the fitted optimum."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator

from oelm.analysis.findings import Findings
from oelm.show import numbers
from oelm.show.article import Table
from oelm.show.tables import captioned, label_of, table
from oelm.show.words import say
from oelm.study.declaration import Language, Tuning
from oelm.study.halving import Round
from oelm.study.scaled import sized_arms
from oelm.study.tuning import Point, point_text

ROUND_COLUMNS = ("arm", "round", "round_steps", "went_on", "dropped")
CURVE_COLUMNS = ("arm", "best_tried", "optimum", "tuning_loss")


def rounds_table(findings: Findings, tuning: Tuning, language: Language) -> Iterator[Table]:
    """What each round dropped; nothing before the first is over."""
    if not findings.plan.rounds:
        return
    comma = say(language, "list_comma")
    rows = [
        [
            label_of(findings, done.arm, language),
            f"{done.number}/{len(tuning.rounds)}",
            numbers.whole(done.steps),
            comma.join(map(grid_value, done.kept)),
            comma.join(_dropped(done, point, language) for point in done.dropped) or numbers.NONE,
        ]
        for done in findings.plan.rounds
    ]
    header = [say(language, f"column.{name}") for name in ROUND_COLUMNS]
    caption = captioned(findings, language, "tuning.rounds", margin=f"{tuning.margin:g}")
    yield Table(caption, header, rows, ["left", "right", "right", "left", "left"])


def _dropped(done: Round, point: Point, language: Language) -> str:
    behind = done.behind[point]
    shown = say(language, "tuning.diverged") if math.isinf(behind) else numbers.nats(behind)
    return f"{grid_value(point)} ({shown})"


def grid_value(point: Point) -> str:
    return numbers.learning_rate(point[0][1]) if len(point) == 1 else point_text(point)


def curves_table(findings: Findings, language: Language) -> Iterator[Table]:
    """The fitted optimum of every arm that has one."""
    rows = []
    for arm, choice in findings.plan.choices.items():
        curve = choice.curve
        if curve is not None:
            shown = [numbers.learning_rate(curve.best), numbers.learning_rate(curve.optimum)]
            rows.append([label_of(findings, arm, language), *shown, numbers.loss(choice.loss)])
    if rows:
        caption = captioned(findings, language, "tuning.curves", steps=tuning_steps(findings, findings.plan.choices))
        yield table(findings, language, CURVE_COLUMNS, rows, caption)


def tuning_steps(findings: Findings, arms: Container[str]) -> str:
    """Of the tuning runs that values of these arms are chosen by: the last round's; from fewest to most."""
    steps = [run.run.training.steps for run in findings.plan.last_round if run.arm in arms]
    return "–".join(map(numbers.whole, sorted({min(steps), max(steps)})))


def extended_lines(findings: Findings, tuning: Tuning, language: Language) -> list[str]:
    """Points beyond the declared ones; in a study with sizes, of which sizes."""
    grids, comma = findings.plan.grids, say(language, "list_comma")
    sized, lines = sized_arms(findings.study), []
    for key, declared in tuning.grid.items():
        by_values: dict[str, list[str]] = {}
        for arm, grid in grids.items():
            added = comma.join(numbers.learning_rate(value) for value in grid[key] if value not in declared)
            by_values.setdefault(added, []).append(sized[arm].size if sized else "")
        for values, sizes in by_values.items():
            if values:
                code = "tuning.extended_at" if sized else "tuning.extended"
                lines.append(say(language, code, key=key, values=values, sizes=comma.join(dict.fromkeys(sizes))))
    return lines
