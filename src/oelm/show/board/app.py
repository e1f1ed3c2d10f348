"""The routes: a page, its files, JSON for each view, and a stream of what changes. All of them only read.

Names in an address are looked up in dictionaries; none is joined to a path.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import importlib.util
import json
from collections.abc import AsyncIterator, Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from oelm.machine.errors import UserError
from oelm.machine.installation import install_command
from oelm.show.board import views
from oelm.show.board.guard import REPORT_POLICY
from oelm.show.board.live import Hub, TooMany
from oelm.show.board.state import Board
from oelm.show.board.words import page_words
from oelm.show.fonts import packaged_files
from oelm.show.words import LANGUAGES
from oelm.study.declaration import Language

TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
PLOTLY = "plotly.min.js"
FONT = "chinese-font"
FOR_A_DAY = {"cache-control": "max-age=86400"}  # libraries of others
PACKED_FROM = 2**12  # bytes
NOT_FOUND = Response("not found\n", status_code=404, media_type="text/plain")


def plotly_file() -> Path:
    """The script that comes with plotly's Python package, which is not imported."""
    spec = importlib.util.find_spec("plotly")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        file = Path(folder) / "package_data" / PLOTLY
        if file.is_file():
            return file
    raise UserError(f"oelm board needs plotly: {install_command('board')}")


@cache
def page_files() -> dict[str, bytes]:
    """By name."""
    return {
        file.name: file.read_bytes() for file in files("oelm.show.board").joinpath("page").iterdir() if file.is_file()
    }


def board_app(board: Board, *, language: Language | None) -> Starlette:
    hub = Hub(board)

    def json_of(compute: Callable[[Request, Language], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            return await run_in_threadpool(lambda: _json(compute(request, _language(request, language)), request))

        return answer

    def name(request: Request, key: str = "name") -> str:
        return request.query_params.get(key, "")

    async def events(request: Request) -> Response:
        names, is_overview = request.query_params.getlist("study"), "overview" in request.query_params
        try:
            stream = await hub.stream(names, is_overview=is_overview)
        except TooMany:
            return Response("too many open pages\n", status_code=503, media_type="text/plain")
        return StreamingResponse(stream, media_type="text/event-stream") if stream else NOT_FOUND

    def report(request: Request) -> Response:
        wanted = _language(request, language)
        file = views.report_file(board, name(request), wanted)
        if file is None:
            return NOT_FOUND
        return FileResponse(file, media_type="text/html", headers={"content-security-policy": REPORT_POLICY})

    routes = {
        "/": lambda request: Response(page_files()["index.html"], media_type="text/html; charset=utf-8"),
        "/page/{file}": _file,
        "/words": json_of(lambda request, language: page_words(language)),
        "/data/overview": json_of(lambda request, language: board.overview()),
        "/data/study": json_of(
            lambda request, language: views.study(
                board, name(request), language, wants_standing="first" not in request.query_params
            )
        ),
        "/data/rows": json_of(lambda request, language: views.rows(board, name(request))),
        "/data/curves": json_of(lambda request, language: views.curves(board, name(request), name(request, "y"))),
        "/data/seeds": json_of(lambda request, language: views.seeds(board, name(request), name(request, "y"))),
        "/data/run": json_of(lambda request, language: views.run(board, name(request))),
        "/data/log": json_of(lambda request, language: views.log(board, name(request))),
        "/data/compare": json_of(lambda request, language: views.compare(board, request.query_params.getlist("name"))),
        "/report": report,
        "/events": events,
    }

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(hub.keep_polling())
        try:
            yield
        finally:
            task.cancel()
            board.close()

    return Starlette(
        routes=[Route(path, endpoint, methods=["GET"]) for path, endpoint in routes.items()], lifespan=lifespan
    )


def _language(request: Request, otherwise: Language | None) -> Language:
    """As the address says, or else the command, or else the browser, which names the language it prefers first."""
    preferred = (part[:2].lower() for part in request.headers.get("accept-language", "").replace(" ", "").split(","))
    for asked in (request.query_params.get("lang"), otherwise, *preferred):
        if found := next((each for each in LANGUAGES if each == asked), None):
            return found
    return "en"


def _json(tree: Any, request: Request) -> Response:
    """Packed if the browser takes it so: a thousand rows become a tenth, which counts behind a tunnel."""
    if tree is None:
        return NOT_FOUND
    text = json.dumps(views.readable(tree), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    content, headers = text.encode(), {"vary": "accept-encoding, accept-language"}
    if len(content) > PACKED_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        content, headers = gzip.compress(content, compresslevel=1, mtime=0), headers | {"content-encoding": "gzip"}
    return Response(content, media_type="application/json", headers=headers)


def _file(request: Request) -> Response:
    name = request.path_params["file"]
    if name == PLOTLY:
        return FileResponse(plotly_file(), media_type="text/javascript", headers=FOR_A_DAY)
    if name == FONT:
        font = next((file for file in packaged_files() if file.is_file()), None)
        return FileResponse(font, headers=FOR_A_DAY) if font else NOT_FOUND
    content, kind = page_files().get(name), TYPES.get(Path(name).suffix)
    if content is None or kind is None:
        return NOT_FOUND
    return Response(content, media_type=f"{kind}; charset=utf-8", headers={"cache-control": "no-cache"})
