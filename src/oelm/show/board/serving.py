"""Start the server: a port, a secret where others could reach it, the address to open. Ctrl-C ends it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from urllib.parse import quote

import uvicorn

from oelm.machine.errors import UserError
from oelm.show.board.app import board_app, plotly_file
from oelm.show.board.guard import Guard, is_loopback
from oelm.show.board.state import Board
from oelm.study.declaration import Language

PORT = 8765
SHORTEST_TURN = 2e-4  # seconds: while verdicts are computed, an answer waits so long at each file that it opens
TRIED_PORTS = 20  # from the usual one on, where it is not given


def serve(
    board: Board, *, host: str, port: int | None, language: Language | None, opens: bool, say: Callable[[str], None]
) -> None:
    """Until it is interrupted."""
    plotly_file()  # now, not when the first page asks
    listener = _listener(host, port)
    secret = None if is_loopback(host) else secrets.token_urlsafe(24)
    sys.setswitchinterval(SHORTEST_TURN)
    parts = [f"study={quote(board.given.name)}"] if board.given else []
    parts += ["lang=zh"] if language == "zh" else []
    address = _address(host, listener.getsockname()[1], secret) + (f"?{'&'.join(parts)}" if parts else "")
    has_screen = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))

    def announce() -> None:
        if secret is not None:
            say(f"warning: {host} can be reached from other machines; whoever has this address can read the runs")
        say(f"{address} (Ctrl-C ends it)")
        if opens and has_screen:
            threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()

    server = server_of(board, host=host, language=language, secret=secret, announce=announce)
    with listener, contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """Announced when it listens for signals too: a Ctrl-C before that could come where Python drops it."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()


def server_of(
    board: Board,
    *,
    host: str,
    language: Language | None,
    secret: str | None,
    announce: Callable[[], None] = lambda: None,
) -> uvicorn.Server:
    """One that listens as soon as it runs with a socket."""
    guard = Guard(board_app(board, language=language), host=host, secret=secret)
    config = uvicorn.Config(
        guard, http="h11", ws="none", loop="asyncio", lifespan="on", log_level="critical", access_log=False,
        server_header=False, date_header=False, proxy_headers=False, timeout_graceful_shutdown=1,
    )  # fmt: skip
    return _Server(config, announce)


def _listener(host: str, port: int | None) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]
    except OSError as error:
        raise UserError(f"--host {host}: {error.strerror}") from error
    ports = range(PORT, PORT + TRIED_PORTS) if port is None else [port]
    for each in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, each))
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRNOTAVAIL:
                raise UserError(f"--host {host}: is no address of this machine") from error
            if each == ports[-1]:
                raise UserError(f"--port {each}: cannot listen at {host} ({error.strerror}); choose another") from error
            continue
        listener.listen()  # whoever has the address may ask at once
        return listener
    raise AssertionError("there is at least one port")


def _address(host: str, port: int, secret: str | None) -> str:
    name = f"[{host}]" if ":" in host else host
    name = socket.gethostname() if host in ("0.0.0.0", "::") else name
    return f"http://{name}:{port}/{f'{secret}/' if secret else ''}"
