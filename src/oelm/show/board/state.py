"""All that a server of pages knows: what there is, who is watched, and where studies stand.

Standings are computed by one thread of their own, for studies that were asked for, and kept until something changes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from shlex import quote
from typing import Any

from oelm.machine.errors import UserError
from oelm.show.board.glance import Row
from oelm.show.board.places import SINGLE, Found, StudyPlace, found_in, refuse_links_out, runs_of
from oelm.show.board.standing import Standing, standing_of
from oelm.show.board.watch import Watch
from oelm.study.archiving import OF_STUDY
from oelm.study.catalogue import study_file
from oelm.study.declaration import Study
from oelm.study.reading import load_study
from oelm.study.registration import as_it_began

FOUND_FOR = 2.0  # seconds that a list of what there is stays good
LISTED_FOR = 1.0  # seconds that a list of runs stays good for somebody who asks for the overview
AWAITED = 0.4  # seconds that an overview waits for standings that are no longer good
LONG_ANSWER = 0.1  # seconds; a page that waited so long for a part of what it draws asks for the rest
NEXT_QUESTION = 1.0  # seconds in which it does
LONGEST_DELAY = 5.0  # seconds that a standing waits for pages before it is begun
LONGEST_STANDSTILL = 1.0  # seconds that it stands still at one run
MOST_FAILURES = 5  # named in the overview of a study
FAILED = ("failed", "damaged", "diverged")


Key = tuple[float | None, ...]


class Board:
    def __init__(self, root: Path | None, given: StudyPlace | None = None) -> None:
        self.root, self.given = root, given
        self._lock = threading.Lock()
        self._found, self._found_at = Found(), float("-inf")
        self._watches: dict[str, Watch] = {}
        self._standings: dict[str, tuple[Key, Standing | str]] = {}
        self._pending: dict[str, Future[None]] = {}
        self._checking: set[str] = set()  # names of watches
        self._studies: dict[str, tuple[float, Study]] = {}  # by source, each with the time of its file
        self._quiet = threading.Condition()
        self._answering = 0
        self._is_closed = False
        self._quiet_from = float("-inf")  # when those who had a long answer have asked for the rest
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="standings")

    def close(self) -> None:
        """No standing is computed any more; one that has been begun is given up at the next run."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        with self._quiet:
            self._is_closed = True
            self._quiet.notify_all()

    # ---- Who goes first ----

    @contextlib.contextmanager
    def answering(self, *, asks_for_more: bool = False) -> Iterator[None]:
        """While somebody waits for an answer that may read many files, what is computed beside stands still: two
        threads of Python share one core, and each file that one opens would cost it a turn of the other. So it does
        after a long answer to a page that asks for more."""
        begun = time.monotonic()
        with self._quiet:
            self._answering += 1
        try:
            yield
        finally:
            with self._quiet:
                self._answering -= 1
                if asks_for_more and time.monotonic() - begun > LONG_ANSWER:
                    self._quiet_from = time.monotonic() + NEXT_QUESTION
                self._quiet.notify_all()

    def _let_answers_go_first(self) -> None:
        with self._quiet:
            self._quiet.wait_for(lambda: not self._answering or self._is_closed, timeout=LONGEST_STANDSTILL)
            if self._is_closed:
                raise UserError("the server ends")

    def _let_a_page_be_drawn_first(self) -> None:
        """One that has had a long answer asks for more at once."""
        deadline = time.monotonic() + LONGEST_DELAY
        while time.monotonic() < min(self._quiet_from, deadline) and not self._is_closed:
            time.sleep(0.05)
        self._let_answers_go_first()

    # ---- What there is ----

    def found(self) -> Found:
        with self._lock:
            if time.monotonic() - self._found_at >= FOUND_FOR:
                found = found_in(self.root) if self.root is not None else Found()
                if self.given is not None:
                    found.studies[self.given.name] = self.given
                self._found, self._found_at = found, time.monotonic()
            return self._found

    def watch(self, name: str) -> Watch | None:
        """Of a study by its name, or of the single runs; None where there is no such study."""
        place = self.found().studies.get(name)
        if place is None and name != SINGLE:
            return None
        with self._lock:
            if name not in self._watches:
                self._watches[name] = Watch(name, lambda: self._listed(name), check_later=self._check_later)
            return self._watches[name]

    def _listed(self, name: str) -> Found:
        """Wherever the study is now: an archive may have become a folder, or a folder may be gone."""
        found = self.found()
        if name == SINGLE:
            return Found(runs=dict(found.runs), left_out=list(found.left_out))
        return runs_of(found.studies[name]) if name in found.studies else Found()

    def is_still(self, names: list[str] | None) -> bool:
        """Whether all that these studies show, or everything, is archived, so that nothing of it can change."""
        studies = self.found().studies
        if names is None:
            return self.root is None and all(place.is_archive for place in studies.values())
        return all(name in studies and studies[name].is_archive for name in names)

    def watches(self) -> list[Watch]:
        names = [*self.found().studies, SINGLE]
        return [watch for name in names if (watch := self.watch(name)) is not None]

    def watch_of_run(self, id: str) -> Watch | None:
        """The one that has this run, refreshed; None where there is no such run."""
        study, slash, _ = id.partition("/")
        watch = self.watch(study if slash else SINGLE)
        if watch is None:
            return None
        with watch.lock:
            watch.refresh(at_once=id)
            return watch if id in watch.rows else None

    # ---- Overview ----

    def overview(self) -> dict[str, Any]:
        """As of now, though nobody may have looked for a while: standings that were known are brought up to date, as
        far as a short wait allows."""
        found, watches = self.found(), self.watches()
        for watch in watches:
            with self.answering(), watch.lock:
                watch.refresh(listed_every=LISTED_FOR, patience=1 / len(watches))
        for name in found.studies.keys() & self._standings.keys():
            self.want_standing(name)
        with self._lock:
            pending = list(self._pending.values())
        wait(pending, timeout=AWAITED)
        return {
            "folder": str(self.root) if self.root is not None else "",
            "studies": [self.summary(name) for name in found.studies],
            "runs": self.single_runs(),
            "left_out": found.left_out,
        }

    def single_runs(self) -> list[Row]:
        single = self.watch(SINGLE)
        assert single is not None
        with single.lock:
            single.refresh(patience=0.0)
            return list(single.rows.values())

    def summary(self, name: str) -> dict[str, Any]:
        """A line of the overview."""
        watch = self.watch(name)
        assert watch is not None
        with watch.lock:
            watch.refresh(patience=0.0)
            rows, left_out, version = list(watch.rows.values()), list(watch.left_out), watch.version
        standing = self.known_standing(name)
        states = Counter(row["state"] for row in rows)
        failures = [{"id": row["id"], "error": row["error"]} for row in rows if row["state"] in FAILED]
        ended = states["finished"] + states["diverged"]
        planned = standing if isinstance(standing, Standing) else None
        return {
            "name": name,
            "version": version,
            "states": dict(sorted(states.items())),
            "progress": planned.progress() if planned else {"done": ended, "planned": len(rows)},
            "is_planned": planned is not None,
            "in_short": planned.in_short() if planned else {},
            "seconds_left": planned.seconds_left if planned else None,
            "changed": max((row["changed"] for row in rows), default=None),
            "failures": failures[:MOST_FAILURES],
            "more_failures": max(0, len(failures) - MOST_FAILURES),
            "left_out": left_out,
        }

    # ---- Checking beside the answers ----

    def _check_later(self, watch: Watch) -> None:
        with self._lock:
            if watch.name not in self._checking and not self._is_closed:
                self._checking.add(watch.name)
                self._worker.submit(self._check, watch)

    def _check(self, watch: Watch) -> None:
        """What has ended and is unchecked; the next look at the watch takes note."""
        try:
            with watch.lock:
                places = watch.unchecked()
            for place in places:
                self._let_answers_go_first()
                watch.remembered.check(place)
        finally:
            with self._lock:
                self._checking.discard(watch.name)

    # ---- Standings ----

    def known_standing(self, name: str) -> Standing | str | None:
        """The last one that was computed, or why there is none; None: it has not been yet."""
        known = self._standings.get(name)
        return known[1] if known else None

    def want_standing(self, name: str) -> None:
        """Have it computed, unless the last one is still good or one is being computed."""
        watch, place = self.watch(name), self.found().studies.get(name)
        if watch is None or place is None:
            return
        known = self._standings.get(name)
        if known is not None and known[0] == self._key(place, watch):
            return
        with self._lock:
            if name in self._pending:
                return
            self._pending[name] = self._worker.submit(self._compute, place, watch)

    def _compute(self, place: StudyPlace, watch: Watch) -> None:
        try:
            self._let_a_page_be_drawn_first()
            with watch.lock:
                watch.refresh()
                key, runs = self._key(place, watch), list(watch.places.values())
            found: Standing | str
            try:
                study = self.declared(place)
                refuse_links_out(place.folder(), OF_STUDY)
                found = standing_of(study, place, runs, watch.remembered, before_each=self._let_answers_go_first)
            except (UserError, OSError) as error:
                found = str(error)
            except Exception as error:  # said on the page, which else would wait for ever
                found = f"{type(error).__name__}: {error}"
            self._standings[place.name] = key, found
            with watch.lock:
                watch.group_by(found.arm_of() if isinstance(found, Standing) else None)
        finally:
            with self._lock:
                self._pending.pop(place.name, None)

    def _key(self, place: StudyPlace, watch: Watch) -> Key:
        """Another one means that a standing may be another: runs, the declaration, what is stored beside the runs."""
        files = [place.path / name for name in OF_STUDY]
        with contextlib.suppress(UserError):
            files.append(study_file(place.source))
        changed: list[float | None] = []
        for file in files:
            try:
                changed.append(file.stat().st_mtime)
            except OSError:
                changed.append(None)
        return watch.ended_version, *changed

    def declared(self, place: StudyPlace) -> Study:
        """Its declaration, read again when its file has changed. UserError where it is not here."""
        try:
            changed = study_file(place.source).stat().st_mtime
        except UserError as error:
            how = f"oelm board STUDY.yaml --runs {quote(str(place.path))}"
            raise UserError(f"the declaration of {place.name} is not here; give it: {how}") from error
        known = self._studies.get(place.source)
        if known is None or known[0] != changed:
            known = self._studies[place.source] = changed, as_it_began(load_study(place.source), place.folder())
        return known[1]
