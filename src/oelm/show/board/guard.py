"""What a request must be before anything answers it: a GET, for our own host name, from our own page, with the secret.

A page of another site can make a browser send requests here, and can give its own name our address (DNS rebinding).
It cannot choose the headers Host and Origin, so these are checked; what comes in the address is looked up, not opened.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from functools import cache
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
MOST_QUERY_BYTES = 8192
_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:(?P<port>\d{1,5}))?")

# No script but our own files and plotly's, no eval; plotly writes a style element of its own.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report is one file: its styles, pictures and font lie in it, and it has no script.
REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; sandbox allow-popups; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": PAGE_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Guard:
    """Around the app. With a secret every path begins with it."""

    app: App
    host: str  # that the server listens at
    secret: str | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no web sockets
        refusal = self._refusal(scope)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        inner = scope
        if self.secret is not None:
            path = self._behind_secret(scope["path"])
            if path is None:
                await _answer(send, 404, "not found")
                return
            inner = {**scope, "path": path, "raw_path": path.encode()}

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message.get("headers", [])}
                ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *(each for each in ours if each[0] not in given)]
            await send(message)

        await self.app(inner, receive, with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        if scope["method"] != "GET":
            return 405, "only GET"
        if len(scope.get("query_string", b"")) > MOST_QUERY_BYTES:
            return 414, "address too long"
        host = headers.get("host", [])
        if len(host) != 1 or not self._is_ours(host[0]):
            return 421, "this server answers only under its own host name"
        for origin in headers.get("origin", []):
            if origin not in (f"http://{host[0]}", f"https://{host[0]}"):
                return 403, "not from a page of this server"
        if headers.get("sec-fetch-site") == ["cross-site"] and headers.get("sec-fetch-mode") != ["navigate"]:
            return 403, "not from a page of this server"
        return None

    def _is_ours(self, host: str) -> bool:
        """The port is not compared: a tunnel may have another, and no site can have a name of ours."""
        found = _HOST.fullmatch(host)
        if found is None or int(found["port"] or 80) > 65535:
            return False
        name = found["name"].lower()
        if name in LOOPBACK_NAMES or name.strip("[]") == self.host.lower():
            return True
        if is_loopback(self.host):
            return False
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name in _names_of_this_machine()
        return True

    def _behind_secret(self, path: str) -> str | None:
        first, slash, rest = path.removeprefix("/").partition("/")
        if not slash or self.secret is None or not secrets.compare_digest(first.encode(), self.secret.encode()):
            return None
        return f"/{rest}"


@cache
def _names_of_this_machine() -> frozenset[str]:
    """Asked for once: a name server may take seconds, and everybody would wait."""
    return frozenset({socket.gethostname().lower(), socket.getfqdn().lower()})


async def _answer(send: Send, status: int, text: str) -> None:
    headers = {**HEADERS, "content-type": "text/plain; charset=utf-8"}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    raw += [(b"allow", b"GET")] if status == 405 else []
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
