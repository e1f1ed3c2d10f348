"""Head scores as lines of text: a row a head, its strongest kind marked."""

from __future__ import annotations

from oelm.models.heads.kinds import KINDS, LEAST_RATIO, LEAST_SHARE, NAMES, SPREADS, HeadScores

MARK = "*"


def table_lines(scores: HeadScores) -> list[str]:
    rows = [["layer", "head", *(f"{name} " if name in KINDS else name for name in NAMES)]]
    for layer, heads in enumerate(scores.scores[NAMES[0]]):
        for head in range(len(heads)):
            strongest = scores.strongest(layer, head)
            row = {name: scores.scores[name][layer][head] for name in NAMES}
            rows.append([str(layer), str(head), *_cells(row, strongest)])
    rows.append(["even", "", *_cells(scores.even, None)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*lines, *_legend()]


def _cells(values: dict[str, float], strongest: str | None) -> list[str]:
    kinds = [f"{values[name]:.3f}{MARK if name == strongest else ' '}" for name in KINDS]
    return [*kinds, *(f"{values[name]:.2f}" for name in SPREADS)]


def _legend() -> list[str]:
    return [
        "even: a head that attends to all keys alike; "
        f"{MARK} the strongest kind of a head, if at least {LEAST_SHARE:g} and at least {LEAST_RATIO:g} times even",
        *(f"{kind.name}: {kind.keys}" for kind in KINDS.values()),
        *(f"{name}: {meaning}" for name, meaning in SPREADS.items()),
    ]
