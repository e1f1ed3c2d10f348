"""A real server on loopback, in a thread, over folders of stored runs."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

pytest.importorskip("starlette", reason="pip install 'oelm[board]'")
pytest.importorskip("plotly", reason="pip install 'oelm[board]'")

from oelm.show.board.places import StudyPlace
from oelm.show.board.serving import server_of
from oelm.show.board.state import Board
from oelm.study.declaration import Language


class Served:
    """A server, and how a well-behaved page asks it."""

    def __init__(self, board: Board, port: int, secret: str | None = None) -> None:
        self.board, self.port, self.secret = board, port, secret

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/{f'{self.secret}/' if self.secret else ''}"

    def answer(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path, headers=headers)
            found = connection.getresponse()
            return found.status, {name.lower(): value for name, value in found.getheaders()}, found.read()

    def json(self, path: str, **query: Any) -> Any:
        status, _, content = self.answer(f"/{path}?{urlencode(query, doseq=True)}")
        return json.loads(content) if status == 200 else status

    def standing(self, name: str, *, language: str = "en", until: Any = lambda found: True) -> Any:
        """Where a study stands, as soon as that is known and as wanted."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            found = self.json("data/study", name=name, lang=language)
            if found["standing"] and until(found["standing"]):
                return found["standing"]
            time.sleep(0.1)
        raise AssertionError(f"waited in vain for the standing of {name}")


@contextlib.contextmanager
def served(
    board: Board, *, host: str = "127.0.0.1", secret: str | None = None, language: Language | None = "en", port: int = 0
) -> Iterator[Served]:
    listener = socket.create_server(("127.0.0.1", port))
    server = server_of(board, host=host, language=language, secret=secret)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield Served(board, listener.getsockname()[1], secret)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


def place_of(study: Any, folder: Path) -> StudyPlace:
    """A study that no file declares."""
    return StudyPlace(study.name, folder, study.name)


def board_of(study: Any, folder: Path, *, root: Path | None = None) -> Board:
    """A board that knows the declaration, as `oelm board STUDY` does from its file."""
    board = Board(root, place_of(study, folder))
    board.declared = lambda place: study  # type: ignore[method-assign]
    return board
