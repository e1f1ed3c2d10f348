"""What the heads of an arm look at: its seeds averaged, during training and at the end."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from oelm.analysis.curves import mean_curve, with_value
from oelm.analysis.findings import Heads
from oelm.models.heads.kinds import KINDS
from oelm.run.directory import RunDirectory
from oelm.storage.metric_records import HeadTables, Record, strongest_head


def heads_of(seeds: Sequence[tuple[RunDirectory, Sequence[Record]]]) -> Heads | None:
    """Over the seeds whose runs recorded scores of heads; None if there are none. Each comes with its records."""
    scored = []
    for directory, records in seeds:
        last = directory.last_head_scores()
        if last and all(with_value(records, strongest_head(kind)) for kind in KINDS):
            scored.append((records, last))
    curves = {kind: mean_curve([records for records, _ in scored], strongest_head(kind)) for kind in KINDS}
    strongest = {kind: curve for kind, curve in curves.items() if curve is not None}
    if not scored or not strongest:
        return None
    return Heads(strongest, _mean_by_rank([last for _, last in scored]), seeds=len(scored))


def _mean_by_rank(tables: Sequence[HeadTables]) -> HeadTables:
    """Of the strongest head of each layer, of the second, and so on: which head of a layer becomes one of a kind is
    chance, so that the mean of equally numbered ones would show neither.
    """
    return {
        kind: [
            [fmean(cells) for cells in zip(*(sorted(row, reverse=True) for row in rows), strict=True)]
            for rows in zip(*(each[kind] for each in tables), strict=True)
        ]
        for kind in KINDS
    }
