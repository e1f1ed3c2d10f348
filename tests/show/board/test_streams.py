"""What a stream of versions says, and when: nothing is missed, nothing is said twice, and one comes back to it."""

import contextlib
import http.client
import json
import shutil
import time
from urllib.parse import urlencode

from board_server import board_of, served
from test_board_state import all_but_one, loss, running, stored_board, study_of_two

from oelm.show.board.live import SILENCE, Hub
from oelm.show.board.state import Board
from oelm.show.board.watch import Watch
from oelm.study.archiving import archive
from stored_runs import store_study

PATIENCE = 30.0  # seconds, on a busy machine


class Stream:
    """The events of a stream, one after another."""

    def __init__(self, server, /, **query):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        self.connection.request("GET", f"/events?{urlencode(query, doseq=True)}")
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200

    def next(self, *kinds):
        """The next one of these kinds, or of any."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            lines = [line for line in iter(self._line, b"\n") if not line.startswith(b":")]
            if lines:
                kind, tree = lines[0].decode().split(": ", 1)[1].strip(), json.loads(lines[1].partition(b": ")[2])
                if not kinds or kind in kinds:
                    return kind, tree
        raise AssertionError(f"waited in vain for {kinds}")

    def _line(self):
        line = self.answer.readline()
        assert line, "the stream has ended"
        return line

    def close(self):
        self.answer.close()
        self.connection.close()


def streamed(server, /, **query):
    return contextlib.closing(Stream(server, **query))


def test_a_stream_says_the_version_of_now_and_each_one_after_it(tmp_path):
    board, study, folder = stored_board(tmp_path)
    directory, rest = running(study, folder)
    with served(board) as server:
        known = server.json("data/curves", name="small", y="train_loss")["version"]
        with streamed(server, study="small") as stream:
            hello = stream.next("hello")
            first = stream.next("change")[1]
            assert (first["study"], first["version"]) == ("small", known)
            directory.append_metrics(rest[0])
            second = stream.next("change")[1]
        assert second["version"] > known
        assert server.json("data/rows", name="small")["version"] >= second["version"]
        directory.append_metrics(rest[1])
        time.sleep(1.5)
        with streamed(server, study="small") as stream:  # whoever comes back
            assert stream.next("hello") == hello
            while stream.next("change")[1]["version"] <= second["version"]:
                pass
        points = server.json("data/curves", name="small", y="train_loss")["bands"]
        assert max(point[0] for arm in points.values() for point in arm["train_loss"]["points"]) >= rest[1]["step"]


def test_a_standing_that_was_computed_is_another_version(tmp_path):
    board, _, _ = stored_board(tmp_path)
    with served(board) as server, streamed(server, study="small") as stream:
        before, rows = stream.next("change")[1], server.json("data/rows", name="small")
        server.standing("small")
        assert stream.next("change")[1]["version"] > before["version"]
        assert server.json("data/rows", name="small")["standing_version"] > rows["standing_version"]


def test_a_study_that_is_deleted_is_said_to_be_gone_and_one_that_comes_back_is_read_anew(tmp_path):
    study, folder = study_of_two(), tmp_path / "runs" / "small"
    store_study(study, folder, all_but_one)
    with (
        served(Board(tmp_path / "runs")) as server,
        streamed(server, study="small") as page,
        streamed(server, overview=1) as overview,
    ):
        page.next("change")
        overview.next("hello")
        time.sleep(1.5)
        shutil.move(folder, tmp_path / "elsewhere")
        assert page.next("gone") == ("gone", {"study": "small"})
        assert overview.next("gone") == ("gone", {"study": "small"})
        shutil.move(tmp_path / "elsewhere", folder)
        assert page.next("gone", "change")[0] == "change"
        assert overview.next("study")[1]["name"] == "small"


def test_a_study_is_read_from_where_it_is_now(tmp_path):
    study, folder = study_of_two(), tmp_path / "runs" / "small"
    store_study(study, folder, loss)
    archive("small", folder, tmp_path / "runs" / "small.zip")
    shutil.rmtree(folder)
    board = Board(tmp_path / "runs")
    assert board.overview()["studies"][0]["states"] == {"finished": 8}
    store_study(study, folder, all_but_one)
    board._found_at = board.watch("small")._listed_at = float("-inf")
    assert board.overview()["studies"][0]["states"] == {"finished": 7}


def test_a_poll_that_fails_is_not_the_last(tmp_path, monkeypatch):
    board, study, folder = stored_board(tmp_path)
    whole, failures = Watch.refresh, iter([1])

    def refresh(self, **how):
        if next(failures, None):
            raise RuntimeError("nobody thought of that")
        whole(self, **how)

    with served(board) as server, streamed(server, study="small") as stream:
        version = stream.next("change")[1]["version"]
        monkeypatch.setattr(Watch, "refresh", refresh)
        time.sleep(1.5)
        running(study, folder)
        assert stream.next("change")[1]["version"] > version


def test_what_is_found_while_news_are_on_their_way_is_told_at_once(tmp_path, monkeypatch):
    board, study, folder = stored_board(tmp_path)
    directory, rest = running(study, folder)
    whole = Hub._news

    def news(self, versions, is_overview):
        found = whole(self, versions, is_overview)
        if found:
            time.sleep(4)  # some polls
        return found

    monkeypatch.setattr(Hub, "_news", news)
    with served(board) as server, streamed(server, study="small") as stream:
        stream.next("change")
        time.sleep(1.5)
        directory.append_metrics(rest[0])
        time.sleep(1.5)
        directory.append_metrics(rest[1])
        begun = time.monotonic()
        stream.next("change")
        stream.next("change")
        assert time.monotonic() - begun < SILENCE  # after which everybody looks again


def test_a_step_that_no_seed_has_any_more_is_gone_from_the_band(tmp_path):
    """Of a run that is taken up again from before it."""
    board, study, folder = stored_board(tmp_path)
    directory, rest = running(study, folder)
    for path in folder.glob(f"{json.loads(directory.config_file.read_text())['arm']}*"):
        if path != directory.path:
            shutil.rmtree(path)
    watch = board.watch("small")
    with watch.lock:
        watch.refresh()
        watch.follow_all("training")

        def drawn() -> set[int]:
            (names,) = [each for arm, each in watch.bands("training").items() if arm == watch.arm_of(id)]
            return {point[0] for point in names["train_loss"]["points"]}

        id = f"small/{directory.path.name}"
        for record in rest[:4]:
            directory.append_metrics(record)
        watch.refresh()
        assert {record["step"] for record in rest[:4] if "val_loss" not in record} <= drawn()
        directory.append_metrics(rest[1])
        watch.refresh()
        assert max(drawn()) < rest[3]["step"]


def test_a_standing_that_is_being_computed_does_not_hold_up_the_end(tmp_path, monkeypatch):
    board, _, _ = stored_board(tmp_path)
    monkeypatch.setattr("oelm.show.board.state.LONGEST_STANDSTILL", 60.0)
    with board.answering():
        board.want_standing("small")
        time.sleep(0.3)
        begun = time.monotonic()
        board.close()
        board._worker.shutdown(wait=True)
        assert time.monotonic() - begun < 5


def test_more_streams_than_anybody_needs_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("oelm.show.board.live.MOST_STREAMS", 2)
    study, folder = study_of_two(), tmp_path / "small"
    store_study(study, folder, loss)
    with served(board_of(study, folder)) as server:
        streams = [Stream(server, study="small") for _ in range(2)]
        assert [stream.next()[0] for stream in streams] == ["hello"] * 2
        assert server.answer("/events?study=small")[0] == 503
        for stream in streams:
            stream.close()
