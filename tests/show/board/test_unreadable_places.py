"""What cannot be read is named and keeps nothing else from being shown."""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from board_server import board_of, served

from oelm.show.board.state import Board
from small_runs import finished
from stored_runs import small_study, store_study


@pytest.fixture
def root(tmp_path):
    store_study(small_study(arms=["trained"], seeds=[0, 1]), tmp_path / "runs" / "small", lambda *_: 3.0)
    return tmp_path / "runs"


@pytest.mark.parametrize("place", [".", "small", "small/tuning"])
def test_a_link_to_itself_hides_nothing(root, place):
    (root / place).mkdir(exist_ok=True)
    (root / place / "loop").symlink_to("loop")
    with served(Board(root)) as server:
        (study,) = server.json("data/overview")["studies"]
        assert study["states"] == {"finished": 2}


PERMISSIONS = """
import json, os, sys
from pathlib import Path
from oelm.board import views
from oelm.board.state import Board
root, refused, mode = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3], 8)
os.chmod(root / refused, mode)
if os.geteuid() == 0:
    os.seteuid(65534)
board = Board(root)
found = board.overview()
run = views.run(board, refused)
print(json.dumps([found, run and run["problems"]]))
"""


@pytest.mark.parametrize(
    ("refused", "mode", "states", "line"),
    [
        ("small/a", "0", {"finished": 1}, "small/a: cannot be listed (Permission denied)"),
        ("small/a", "444", {"damaged": 1, "finished": 1}, "small/a: cannot be read (Permission denied)"),
        ("small", "0", None, "small: cannot be listed (Permission denied)"),
        ("other.zip", "0", {"finished": 2}, "other.zip: cannot be read (Permission denied)"),
    ],
)
def test_what_the_user_may_not_read_is_named(root, refused, mode, states, line):
    (stored, _) = (root / "small").iterdir()
    with tempfile.TemporaryDirectory() as name:  # one that another user may look into, unlike pytest's
        folder = Path(name) / "runs"
        for each in ("a", "b"):
            shutil.copytree(stored, folder / "small" / each)
        (folder / "other.zip").write_bytes(b"x" * 1000)
        os.chmod(name, 0o755)
        done = finished([sys.executable, "-c", PERMISSIONS, str(folder), refused, mode])
        os.chmod(folder / refused, 0o755)
    assert done.returncode == 0, done.stderr
    found, problems = json.loads(done.stdout)
    assert [study["states"] for study in found["studies"]] == ([states] if states else [])
    of_studies = [text for study in found["studies"] for text in study["left_out"]]
    failures = [each["error"] for study in found["studies"] for each in study["failures"]]
    assert [text for text in [*found["left_out"], *of_studies, *failures] if text.endswith(line)]
    assert problems or mode == "0"


def test_an_error_that_nobody_thought_of_is_said_in_the_place_of_verdicts(root, monkeypatch):
    study = small_study(arms=["trained"], seeds=[0, 1])
    monkeypatch.setattr("oelm.show.board.state.standing_of", lambda *_, **__: 1 / 0)
    board = board_of(study, root / "small")
    with served(board) as server:
        server.json("data/study", name="small")
        board._worker.submit(lambda: None).result()
        assert server.json("data/study", name="small")["problem"] == "ZeroDivisionError: division by zero"
