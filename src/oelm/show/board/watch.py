"""One study, or the single runs, while somebody looks; a version that grows with whatever a page shows of it.

Directories are listed every few seconds, files of runs that have not ended are looked at every second, and of a metric
file only what is new is read, of a run that has ended after the run was checked. Everything here runs in a worker
thread, one at a time (`lock`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from oelm.show.board.follow import KIND_OF, PLACE, POINTS, VALUES, Follower, Point, Series
from oelm.show.board.glance import ENDED, SETTLED, UNCHECKED, WITHOUT_NUMBERS, Remembered, Row, row_of
from oelm.show.board.places import SINGLE, Found, RunPlace, Signature, looked_at_again

LISTED_EVERY = 4.0  # seconds
PATIENCE = 0.1  # seconds that one answer may spend on checking runs that have ended; the rest is checked beside it


class Watch:
    def __init__(
        self, name: str, listed: Callable[[], Found], *, check_later: Callable[[Watch], None] = lambda watch: None
    ) -> None:
        self.name = name
        self.remembered = Remembered()
        self._check_later = check_later
        self.lock = threading.Lock()
        self.version = 0
        self.standing_version = 0  # how often it was computed where the study stands
        self.rows: dict[str, Row] = {}
        self.places: dict[str, RunPlace] = {}
        self.left_out: list[str] = []
        self.arms: dict[str, str] | None = None  # of planned runs, by id, when the plan is known
        self.ended_version = 0  # grows whenever verdicts may change
        self._listed = listed
        self._listed_at = float("-inf")
        self._kinds: set[str] = set()  # of records that are read of all runs
        self._followers: dict[tuple[str, str], Follower] = {}  # by id and kind
        self._read_at: dict[tuple[str, str], Signature] = {}  # the same: what the files of the run were then
        self._known_bands: dict[tuple[str | None, str], Any] = {}  # by arm and name

    # ---- What there is ----

    def refresh(self, *, listed_every: float = LISTED_EVERY, patience: float = 1.0, at_once: str | None = None) -> None:
        """Take note of what has changed, and of one run also if nothing is known to have, whatever it takes to check
        it. `patience` is a share of PATIENCE. For the owner of the lock."""
        until = time.monotonic() + patience * PATIENCE
        is_due = time.monotonic() - self._listed_at >= listed_every
        changed = self._list_again(until) if is_due else self._look_again(until)
        if at_once is not None and at_once in self.places and (now := looked_at_again(self.places[at_once])):
            changed += self._updated([now], math.inf)
        if self.unchecked():
            self._check_later(self)
        if self._read_on() or changed:
            self.version += 1

    def unchecked(self) -> list[RunPlace]:
        return [self.places[id] for id, row in self.rows.items() if row["state"] == UNCHECKED]

    def _list_again(self, until: float) -> list[str]:
        self._listed_at = time.monotonic()
        found = self._listed()
        self.left_out = found.left_out
        gone = self.rows.keys() - found.runs.keys()
        for id in gone:
            del self.rows[id], self.places[id]
            for kind in VALUES:
                self._followers.pop((id, kind), None)
                self._read_at.pop((id, kind), None)
        if gone:
            self.ended_version += 1
            self._known_bands.clear()
            self.remembered.forget_all_but({place.path for place in found.runs.values()})
        return [*gone, *self._updated(found.runs.values(), until)]

    def _look_again(self, until: float) -> list[str]:
        unchecked = self.unchecked()
        underway = [place for id, place in self.places.items() if self.rows[id]["state"] not in (*ENDED, UNCHECKED)]
        now = (looked_at_again(place) for place in underway)
        return self._updated([*unchecked, *(place for place in now if place is not None)], until)

    def _updated(self, places: Iterable[RunPlace], until: float) -> list[str]:
        """The ids of those whose row is another now. What is not checked by then stays unchecked."""
        changed = []
        for place in places:
            before, known = self.rows.get(place.id), self.places.get(place.id)
            is_same = known is not None and known.signature == place.signature
            was = None if before is None else before["state"]
            may_check = time.monotonic() < until
            if is_same and was == UNCHECKED and not may_check and self.remembered.known(place) is None:
                continue
            if is_same and was not in ("running", UNCHECKED):  # of one that runs, the process may have died
                continue
            self.places[place.id] = place
            row = row_of(place, self.remembered, may_check=may_check)
            is_edited = not is_same and row["state"] in (*SETTLED, UNCHECKED)
            if was != row["state"] or is_edited:
                self.ended_version += was != UNCHECKED or is_edited  # whoever saw these files before has checked them
                self._known_bands.clear()
            if row != before:
                self.rows[place.id] = row
                changed.append(place.id)
                for kind in self._kinds:
                    self._follow(place, kind)
        return changed

    # ---- Curves ----

    def follow_all(self, kind: str) -> None:
        """Read one kind of record of all final and single runs, and go on reading it."""
        if kind not in self._kinds:
            self._kinds.add(kind)
            for place in self.places.values():
                self._follow(place, kind)

    def follow(self, id: str, kind: str) -> Follower:
        """Of one run, whatever its stage."""
        if (id, kind) not in self._followers:
            place = self.places[id]
            self._followers[id, kind] = follower = Follower(place.directory.metrics_file, kind)
            if self.rows[id]["state"] not in WITHOUT_NUMBERS:
                follower.poll()
                self._read_at[id, kind] = place.signature
            self._known_bands.clear()
        return self._followers[id, kind]

    def _follow(self, place: RunPlace, kind: str) -> None:
        if place.stage == "final" or self.name == SINGLE:
            self.follow(place.id, kind)

    def _read_on(self) -> bool:
        """Whether anything is new in the curves of runs, and so in those of their arms."""
        is_new = False
        for (id, kind), follower in self._followers.items():
            place, state, before = self.places[id], self.rows[id]["state"], follower.version
            is_read = self._read_at.get((id, kind)) == place.signature
            if state == UNCHECKED or (is_read and state != "damaged"):
                continue  # what was read before stays
            if state == "damaged":
                follower.start_again()
                self._read_at.pop((id, kind), None)
            else:
                self._read_at[id, kind] = place.signature
                follower.poll()
            if follower.version != before:
                is_new = True
                for name in VALUES[kind]:
                    self._known_bands.pop((self.arm_of(id), name), None)
        return is_new

    def arm_of(self, id: str) -> str | None:
        """None: a run that the study does not plan."""
        if self.arms is not None:
            return self.arms.get(id)
        arm = self.rows[id]["arm"]
        return arm if isinstance(arm, str) else None

    def arms_of(self, ids: Iterable[str]) -> dict[str, str]:
        """The final runs of arms among these, with their arms."""
        final = (id for id in ids if self.rows[id]["stage"] == "final")
        return {id: arm for id in final if (arm := self.arm_of(id))}

    def group_by(self, arms: dict[str, str] | None) -> None:
        """What the plan says of the runs; verdicts may be others too."""
        if arms != self.arms:
            self._known_bands.clear()
        self.arms = arms
        self.version += 1
        self.standing_version += 1

    def members(self, kind: str) -> dict[str, list[Member]]:
        """The final runs of each arm that are followed."""
        found: dict[str, list[Member]] = {}
        for (id, of_kind), follower in self._followers.items():
            arm, row = self.arm_of(id), self.rows[id]
            if of_kind != kind or arm is None or row["stage"] != "final":
                continue
            found.setdefault(arm, []).append(Member(follower.series, row["state"] in ENDED))
        return found

    def bands(self, kind: str) -> dict[str, Any]:
        """The whole curves of all arms, by name of what is measured; computed once until a run of the arm goes on."""
        found: dict[str, Any] = {}
        for arm, members in self.members(kind).items():
            steps: list[int] | None = None
            for name in VALUES[kind]:
                if (arm, name) not in self._known_bands:
                    steps = steps_of(members) if steps is None else steps
                    seeds = sum(bool(member.series.steps) for member in members)  # that have recorded anything
                    self._known_bands[arm, name] = {"points": points_at(members, name, steps), "seeds": seeds}
                if self._known_bands[arm, name]["points"]:
                    found.setdefault(arm, {})[name] = self._known_bands[arm, name]
        return found

    def curve_of(self, id: str, name: str, *, most: int = POINTS) -> list[Point]:
        """Of one run, some of its points where it has more than that many, always the last."""
        points = list(self.follow(id, KIND_OF[name]).series.points(name))
        stride = -(-len(points) // most)
        return points[(len(points) - 1) % stride :: stride] if points else []


# ---- Curves of arms: mean, smallest and largest at each step over the seeds that have come so far -------------------


BandPoint = list[float]  # step, tokens, seconds, mean, smallest, largest, number of seeds


@dataclass(frozen=True)
class Member:
    """A run of an arm, with what it recorded of the kind that is drawn."""

    series: Series
    has_ended: bool


def steps_of(members: list[Member]) -> list[int]:
    """Those at which the arm is drawn: multiples of the widest stride. The last step of a run that has not ended is one
    of its own."""
    stride = max((member.series.stride for member in members), default=1)
    found: set[int] = set()
    for member in members:
        series = member.series
        found.update(series.steps if series.stride == stride else filter(lambda step: step % stride == 0, series.steps))
        if series.is_extra:
            found.discard(series.steps[-1])
    last = (member.series.steps[-1] for member in members if member.has_ended and member.series.steps)
    return sorted({*found, *last})


def points_at(members: list[Member], name: str, steps: list[int]) -> list[BandPoint]:
    """Steps, which rise, where no seed has a value are left out."""
    import numpy as np

    at_steps = np.array(steps, dtype=np.int64)
    sums, count = np.zeros((len(PLACE) + 1, len(steps))), np.zeros(len(steps), dtype=np.int64)
    low, high = np.full(len(steps), np.inf), np.full(len(steps), -np.inf)
    for member in members:
        own, *columns = (np.array(column) for column in member.series.columns_of(name))
        has_value = np.isfinite(columns[-1])
        _, at, own_at = np.intersect1d(at_steps, own[has_value], assume_unique=True, return_indices=True)
        values = np.array(columns)[:, has_value][:, own_at]
        sums[:, at] += values
        count[at] += 1
        low[at], high[at] = np.minimum(low[at], values[-1]), np.maximum(high[at], values[-1])
    kept = count > 0
    means = sums[:, kept] / count[kept]
    columns = [at_steps[kept], *means, low[kept], high[kept], count[kept]]
    return [list(point) for point in zip(*(column.tolist() for column in columns), strict=True)]
