"""S3, S6: hostile requests to a real server. None is answered, and nothing outside the folder is ever read."""

import contextlib
import shutil
import socket

import pytest
from board_server import board_of, served

from oelm.show.board.guard import PAGE_POLICY, REPORT_POLICY, _names_of_this_machine
from oelm.show.board.state import Board
from oelm.storage.files import REPORT_RESULTS
from oelm.study.archiving import OF_STUDY
from stored_runs import small_study, store_study

CANARY = "canary-that-nobody-may-read"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder of runs, beside it and behind links what must not be read."""
    top = tmp_path_factory.mktemp("world")
    (top / "secret.txt").write_text(CANARY)
    outside = top / "outside"
    store_study(small_study(arms=["trained"], seeds=[0]), outside / "elsewhere", lambda *_: 3.0)
    for log in outside.glob("elsewhere/*/"):
        (log / "training.log").write_text(CANARY)
    root = top / "runs"
    store_study(small_study(arms=["trained"], seeds=[0]), root / "small", lambda *_: 3.0)
    (root / "linked").symlink_to(outside / "elsewhere")
    (root / "small" / "linked-run").symlink_to(next((outside / "elsewhere").iterdir()))
    inner = root / "small" / "with-link"
    inner.mkdir()
    (inner / "config.json").write_text(next((root / "small").glob("trained*/config.json")).read_text())
    (inner / "training.log").symlink_to(top / "secret.txt")
    (root / "up").symlink_to("..")
    return root


@pytest.fixture(scope="module")
def server(world):
    with served(Board(world)) as found:
        yield found


def raw(server, text: bytes) -> bytes:
    """What is answered to these bytes."""
    address = ("127.0.0.1", server.port)
    with contextlib.suppress(ConnectionError), socket.create_connection(address, timeout=20) as connection:
        connection.sendall(text)
        found = b""
        while not _is_whole(found) and (piece := connection.recv(65536)):
            found += piece
        return found
    return b""


def _is_whole(answer: bytes) -> bool:
    """Whether an answer with a stated length is there: the connection may stay open."""
    head, gap, body = answer.partition(b"\r\n\r\n")
    length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(gap and length) and len(body) >= int(length[0].partition(b":")[2])


def request(path: str, *headers: str, method: str = "GET", host: str | None = "127.0.0.1") -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        *([f"Host: {host}"] if host is not None else []),
        *headers,
        "Connection: close",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


PATHS = [
    "/../secret.txt", "/%2e%2e%2fsecret.txt", "/..%5csecret.txt", "/page/..%2f..%2fsecret.txt", "/page/%00",
    "/page//etc/passwd", "/page/app.py", "/page/..", "//etc/passwd", "/%c0%ae%c0%ae/secret.txt",
    "/%252e%252e/secret.txt", "/runs/small", "/data/../words", "/page/plotly.min.js/..",
    "/data/run?name=small%2f..%2f..%2fsecret.txt",
    "/data/run?name=/etc/passwd", "/data/run?name=small/linked-run", "/data/run?name=small/with-link",
    "/data/log?name=small/with-link", "/data/run?name=linked/trained", "/data/run?name=small/%00", "/data/run",
    "/data/study?name=..", "/data/study?name=linked", "/data/study?name=../outside/elsewhere", "/data/study?name=",
    "/data/curves?name=..%2foutside", "/data/seeds?name=linked", "/data/compare?name=../a&name=/etc/passwd",
    "/report?name=../../secret.txt", "/report?name=small&lang=../../../secret", "/events", "/events?study=linked",
    "/events?study=small&study=/etc",
]  # fmt: skip


def test_no_path_of_an_address_reaches_the_file_system(server):
    for path in PATHS:
        found = raw(server, request(path))
        assert found.split(b" ", 2)[1] in (b"404", b"400"), (path, found[:200])
        assert CANARY.encode() not in found
        assert b"root:" not in found


HOSTS = [
    "evil.example:80", "127.0.0.1.evil.example", "evil.example@127.0.0.1", "127.0.0.1@evil.example", "192.168.0.1:8765",
    "0.0.0.0", "[::ffff:10.0.0.1]", "127.0.0.1:99999", "127.0.0.1/", "", "local host", "LOCALHOST.", "127.1",
    "2130706433", "localhost,evil.example",
]  # fmt: skip


def test_another_host_name_is_refused(server):
    for host in HOSTS:
        found = raw(server, request("/data/overview", host=host))
        assert found.split(b" ", 2)[1] in (b"421", b"400"), (host, found[:200])
        assert b"studies" not in found
    for words in ([None], ["127.0.0.1", "Host: evil.example"], ["evil.example", "Host: 127.0.0.1"]):  # none, or two
        host, *more = words
        assert not raw(server, request("/data/overview", *more, host=host)).startswith(b"HTTP/1.1 200")


def test_a_loopback_name_is_answered_whatever_port_a_tunnel_has(server):
    for host in ("127.0.0.1", "LocalHost:9999", "[::1]:80"):
        assert raw(server, request("/data/overview", host=host)).startswith(b"HTTP/1.1 200")


ORIGINS = [
    "https://evil.example", "null", "http://127.0.0.1.evil.example", "http://127.0.0.1:1", "http://localhost",
    "ftp://127.0.0.1", "http://127.0.0.1@evil.example",
]  # fmt: skip


def test_another_origin_is_refused_and_its_own_is_answered(server):
    for origin in ORIGINS:
        found = raw(server, request("/data/overview", f"Origin: {origin}"))
        assert found.startswith(b"HTTP/1.1 403"), origin
        assert b"studies" not in found
    assert raw(server, request("/data/overview", "Origin: http://127.0.0.1")).startswith(b"HTTP/1.1 200")


def test_what_another_site_embeds_is_refused_and_a_link_from_there_is_not(server):
    embedded = request("/data/overview", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors")
    assert raw(server, embedded).startswith(b"HTTP/1.1 403")
    link = request("/", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate")
    assert raw(server, link).startswith(b"HTTP/1.1 200")


def test_there_is_only_get(server):
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PROPFIND", "get"):
        assert not raw(server, request("/data/overview", method=method)).startswith(b"HTTP/1.1 200"), method


MALFORMED = [
    b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n", b"A" * 200_000,
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nzzz",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /data/overview HTTP/1.1\r\nHost: 127.0.0.1\r\nHost : evil.example\r\n\r\n",
]  # fmt: skip


def test_what_is_no_request_harms_nothing(server):
    for text in MALFORMED:
        found = raw(server, text)
        assert CANARY.encode() not in found
        assert b"Traceback" not in found
    assert server.json("data/overview")["studies"]  # it goes on
    status, _, _ = server.answer("/data/compare?" + "&".join(f"name=small/{number}" for number in range(2000)))
    assert status == 414  # an address of unreasonable length


def test_a_web_socket_is_not_opened(server):
    key = "Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw=="
    upgrade = ("Upgrade: websocket", "Connection: Upgrade", key, "Sec-WebSocket-Version: 13")
    assert raw(server, request("/words", *upgrade)).startswith(b"HTTP/1.1 200")  # an answer, and no upgrade


def test_every_answer_forbids_foreign_and_inline_script(server):
    for path in ("/", "/page/main.js", "/words", "/data/overview", "/nothing"):
        _, headers, page = server.answer(path)
        policy = headers["content-security-policy"]
        assert policy == PAGE_POLICY
        assert "script-src 'self';" in policy
        assert "unsafe-eval" not in policy
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        if path == "/":
            assert b"<style" not in page
            assert b"style=" not in page
            assert page.count(b"<script") == page.count(b'<script type="module" src="page/main.js"></script>') == 1


def test_a_report_may_run_nothing(server, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports" / "small").mkdir(parents=True)
    (tmp_path / "reports" / "small" / "report.en.html").write_text("<script>alert(1)</script>")
    (tmp_path / "reports" / "small" / REPORT_RESULTS).write_text('{"study": {"name": "small"}, "arms": {}}')
    status, headers, _ = server.answer("/report?name=small&lang=en")
    assert (status, headers["content-security-policy"]) == (200, REPORT_POLICY)
    assert "script" not in REPORT_POLICY
    (tmp_path / "reports" / "small" / "report.zh.html").symlink_to(world.parent / "secret.txt")
    assert server.answer("/report?name=small&lang=zh")[0] == 404


def test_links_out_of_the_folder_are_named_and_not_shown(server):
    found = server.json("data/overview")
    assert [study["name"] for study in found["studies"]] == ["small"]
    lines = [*found["left_out"], *found["studies"][0]["left_out"]]
    for name in ("linked", "up", "linked-run"):
        assert any(line.endswith(f"/{name}: is a link out of the folder, and is not read") for line in lines), lines
    run = "training.log: is a link out of the folder, so the run with-link is not shown"
    assert [line for line in lines if "training.log" in line and line.endswith(f"/{run}")], lines


@pytest.mark.parametrize("name", OF_STUDY)
def test_a_file_of_a_study_that_is_a_link_out_of_its_folder_is_not_read(tmp_path, name):
    study, folder = small_study(arms=["trained"], seeds=[0]), tmp_path / "runs" / "small"
    store_study(study, folder, lambda *_: 3.0)
    (tmp_path / name).write_text("{}")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(tmp_path / name)
    board = board_of(study, folder)
    with served(board) as server:
        server.json("data/study", name="small")
        board._worker.submit(lambda: None).result()
        found = server.json("data/study", name="small")
    assert found["problem"].endswith(f"/{name}: is a link out of the folder, and is not read")
    assert found["standing"] is None


def test_a_single_run_with_a_link_out_of_the_folder_is_named_once_and_is_no_study(tmp_path):
    study = small_study(arms=["trained"], seeds=[0])
    store_study(study, tmp_path / "work", lambda *_: 3.0)
    (made,) = (tmp_path / "work").iterdir()
    run = tmp_path / "runs" / "alone"
    shutil.copytree(made, run)
    shutil.copytree(made, run / "best")  # which has files that runs have
    (tmp_path / "elsewhere").write_text("{}")
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(tmp_path / "elsewhere")
    with served(Board(tmp_path / "runs")) as server:
        found = server.json("data/overview")
    assert (found["studies"], found["runs"]) == ([], [])
    (line,) = found["left_out"]
    assert line.endswith("alone/metrics.jsonl: is a link out of the folder, so the run alone is not shown")


class TestBeyondLoopback:
    @pytest.fixture
    def server(self, world):
        with served(Board(world), host="192.0.2.7", secret="s3cret-of-this-test") as found:
            yield found

    def test_without_the_secret_or_under_a_foreign_name_nothing_is_answered(self, server):
        for path in ("/", "/data/overview", "/page/main.js", "/wrong/data/overview", "/s3cret-of-this-test"):
            assert server.answer(path)[0] == 404
        assert server.answer("/s3cret-of-this-test/")[0] == 200
        assert server.answer("/s3cret-of-this-test/data/overview", Host="192.0.2.7:80")[0] == 200
        assert server.answer("/s3cret-of-this-test/data/overview", Host="evil.example")[0] == 421

    def test_a_name_server_is_asked_once_for_the_names_of_this_machine(self, server, monkeypatch):
        asked = []
        monkeypatch.setattr(socket, "getfqdn", lambda: asked.append(1) or "machine.example")
        _names_of_this_machine.cache_clear()
        try:
            for host, status in (("machine.example", 200), ("Machine.example:8765", 200), ("evil.example", 421)):
                assert server.answer("/s3cret-of-this-test/words", Host=host)[0] == status
        finally:
            _names_of_this_machine.cache_clear()
        assert asked == [1]
