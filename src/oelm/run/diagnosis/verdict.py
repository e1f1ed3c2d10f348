"""From what was seen to what is wrong: one line for each kind of problem, with the names it concerns."""

from __future__ import annotations

from collections.abc import Callable

from oelm.core.accounting import Totals
from oelm.run.diagnosis.storage import Storage
from oelm.run.diagnosis.survey import Surveyed, enumerated


def entry_problems(entries: tuple[Surveyed, ...]) -> list[str]:
    """What the entries themselves show. The first line that fits an entry is the one it is named in, by group."""
    return [
        *_lines(
            entries,
            (lambda e: e.should_move == "never" and bool(e.moved_at), "should never move, but moved in a step"),
            (_moved_at_rest, "moved in a step in which its schedule freezes it"),
        ),
        *_lines(
            entries,
            (lambda e: e.should_move == "never" and e.requires_grad, "should never move, but requires a gradient"),
            (lambda e: e.should_move != "never" and _off(e), "should move, but requires no gradient"),
        ),
        *_lines(entries, (_held_in_vain, None)),
        *_lines(
            entries,
            (lambda e: _should(e) and e.in_optimizer is False, "should move, but the optimizer does not contain it"),
            (lambda e: _stood_still(e) and e.had_gradient is False, "should have moved, but had no gradient"),
            (lambda e: _stood_still(e) and not _off(e), "should have moved in a step, but did not"),
        ),
    ]


def _lines(entries: tuple[Surveyed, ...], *tests: tuple[Callable[[Surveyed], bool], str | None]) -> list[str]:
    lines, named = [], set()
    for test, text in tests:
        found = [entry for entry in entries if entry.should_move is not None and entry not in named and test(entry)]
        named.update(found)
        if found:
            lines.append(f"{text or _held_text(found)}: {enumerated([entry.name for entry in found])}")
    return lines


def _should(entry: Surveyed) -> bool:
    return entry.should_move in ("always", "by schedule") and entry.kind == "parameter"


def _off(entry: Surveyed) -> bool:
    """A scheduled parameter is switched on and off during training; only the others tell something."""
    return not entry.requires_grad and entry.should_move != "by schedule"


def _moved_at_rest(entry: Surveyed) -> bool:
    return bool(set(entry.moved_at or ()) - set(entry.should_move_at or ())) and entry.should_move_at is not None


def _stood_still(entry: Surveyed) -> bool:
    return bool(set(entry.should_move_at or ()) - set(entry.moved_at or ())) and entry.moved_at is not None


def _held_in_vain(entry: Surveyed) -> bool:
    return entry.should_move == "never" and entry.in_optimizer is True


def _held_text(found: list[Surveyed]) -> str:
    decay = max(entry.weight_decay for entry in found)
    return (
        f"should never move, but the optimizer contains it (weight decay {decay:g}), so that a gradient left from "
        "before, even a zero one, lets decay and momentum move it"
    )


def total_problems(counts: dict[str, Totals]) -> list[str]:
    if len(set(counts.values())) <= 1:
        return []
    ways = "; ".join(f"{way} {t.total:,} / {t.trainable:,} / {t.frozen:,} / {t.implied:,}" for way, t in counts.items())
    return [f"the counts (total / trainable / frozen / implied) disagree: {ways}"]


def storage_problems(storage: Storage) -> list[str]:
    return [
        f"{text}: {enumerated(list(names))}"
        for names, text in (
            (storage.changed, "a save and a load gave back other values"),
            (storage.thawed, "a load thawed what was frozen"),
            (storage.frozen, "a load froze what was trainable"),
        )
        if names
    ]
