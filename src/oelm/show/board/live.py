"""Who looks at what, and what they are told: one poll of the watched folders for all pages, which ask for what changed.

Nothing is read while nobody looks. A poll that took long is followed by a longer pause, so that an idle page costs at
most a small share of one core.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool

from oelm.show.board.places import SINGLE
from oelm.show.board.state import Board
from oelm.show.board.views import readable
from oelm.show.board.watch import Watch

EVERY = 1.0  # seconds
LARGEST_SHARE = 0.04  # of a core, for polling
PATIENCE = 0.3  # of that of an answer, for all that is watched together
SILENCE = 15.0  # seconds after which a sign of life is sent
MOST_STREAMS = 40
GONE, UNTOLD = -1, -2  # in the place of the version of a study that is no longer there, or was not told yet


class TooMany(Exception):
    """More pages are open than a person has."""


class Hub:
    def __init__(self, board: Board) -> None:
        self.board = board
        self.watched: Counter[str] = Counter()  # studies, by how many look at them
        self.overviews = 0
        self.streams = 0
        self.seconds = 0.0  # that the last poll took
        self.token = secrets.token_hex(8)  # of this server: another one counts versions anew
        self._told = asyncio.Condition()
        self._turn = 0  # how often there was something to tell
        self._versions: dict[str, int] = {}  # at the last poll

    # ---- Reading ----

    async def keep_polling(self) -> None:
        while True:
            begun = time.monotonic()
            if self.streams:
                with contextlib.suppress(Exception):  # what cannot be read now may be the next time
                    if await run_in_threadpool(self._look):
                        async with self._told:
                            self._turn += 1
                            self._told.notify_all()
                self.seconds = time.monotonic() - begun
            await asyncio.sleep(max(EVERY - self.seconds, self.seconds * (1 / LARGEST_SHARE - 1)))

    def _look(self) -> bool:
        """Whether there is anything to tell."""
        watches = self.board.watches() if self.overviews else []
        watches += [watch for name in list(self.watched) if (watch := self.board.watch(name)) is not None]
        for watch in dict.fromkeys(watches):
            with watch.lock:
                watch.refresh(patience=PATIENCE / len(watches))
            if self.overviews or self.board.known_standing(watch.name) is not None:
                self.board.want_standing(watch.name)
        # Not only what was read here: a standing is told by its own thread, which cannot wake anybody, and a study may
        # have come or gone.
        before, self._versions = self._versions, {watch.name: watch.version for watch in watches}
        return self._versions != before

    # ---- Telling ----

    async def stream(self, names: list[str], *, is_overview: bool) -> AsyncIterator[bytes] | None:
        """The versions of some studies, now and whenever one is another; None where one is not here."""
        watches = await run_in_threadpool(lambda: [self.board.watch(name) for name in dict.fromkeys(names)])
        if None in watches or not (watches or is_overview):
            return None
        if self.streams >= MOST_STREAMS:
            raise TooMany
        return self._stream([watch for watch in watches if watch is not None], is_overview=is_overview)

    async def _stream(self, watches: list[Watch], *, is_overview: bool) -> AsyncIterator[bytes]:
        self.streams += 1
        self.overviews += is_overview
        self.watched.update(watch.name for watch in watches)
        try:
            names = [watch.name for watch in watches]
            versions = dict.fromkeys(names, UNTOLD)
            if is_overview:
                versions = {watch.name: watch.version for watch in await run_in_threadpool(self.board.watches)}
            is_still = await run_in_threadpool(self.board.is_still, None if is_overview else names)
            yield _message("hello", {"server": self.token, "is_still": is_still})
            while True:
                turn = self._turn  # a poll while the news are on their way is not waited for again
                for kind, tree in await run_in_threadpool(self._news, versions, is_overview):
                    yield _message(kind, tree)
                try:
                    async with self._told:
                        await asyncio.wait_for(self._told.wait_for(partial(self._is_past, turn)), SILENCE)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self.streams -= 1
            self.overviews -= is_overview
            self.watched.subtract(watch.name for watch in watches if not is_overview)
            self.watched += Counter()  # without those that nobody looks at

    def _is_past(self, turn: int) -> bool:
        return self._turn != turn

    def _news(self, versions: dict[str, int], is_overview: bool) -> list[tuple[str, Any]]:
        """What is newer than these versions, which are brought up to date."""
        found: list[tuple[str, Any]] = []
        names = [watch.name for watch in self.board.watches()] if is_overview else list(versions)
        for name in dict.fromkeys([*versions, *names]):
            watch = self.board.watch(name)
            if watch is None:
                if versions.get(name) != GONE:
                    found.append(("gone", {"study": name}))
                versions[name] = GONE
                continue
            version = watch.version
            if versions.get(name) == version:
                continue
            versions[name] = version
            if not is_overview:
                found.append(("change", {"study": name, "version": version}))
            elif name == SINGLE:
                found.append(("runs", {"runs": self.board.single_runs()}))
            else:
                found.append(("study", self.board.summary(name)))
        return found


def _message(kind: str, tree: Any) -> bytes:
    text = json.dumps(readable(tree), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return f"event: {kind}\ndata: {text}\n\n".encode()
