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


def test_a_link_to_itself_hides_nothing(root):
    for place in (".", "small", "small/tuning"):
        (root / place).mkdir(exist_ok=True)
        (root / place / "loop").symlink_to("loop")
    with served(Board(root)) as server:
        (study,) = server.json("data/overview")["studies"]
        assert study["states"] == {"finished": 2}


PERMISSIONS = """
import json, os, sys
from pathlib import Path
from oelm.show.board import views, watch
from oelm.show.board.state import Board
watch.PATIENCE = 60.0
cases = json.loads(sys.argv[1])
for root, refused, mode in cases:
    os.chmod(Path(root) / refused, int(mode, 8))
if os.geteuid() == 0:
    os.seteuid(65534)
told = []
for root, refused, _ in cases:
    board = Board(Path(root))
    found, run = board.overview(), views.run(board, refused)
    told.append([found, run and run["problems"]])
print(json.dumps(told))
"""
REFUSED = [
    ("small/a", "0", {"finished": 1}, "small/a: cannot be listed (Permission denied)"),
    ("small/a", "444", {"damaged": 1, "finished": 1}, "small/a: cannot be read (Permission denied)"),
    ("small", "0", None, "small: cannot be listed (Permission denied)"),
    ("other.zip", "0", {"finished": 2}, "other.zip: cannot be read (Permission denied)"),
]


def test_what_the_user_may_not_read_is_named(root):
    (stored, _) = (root / "small").iterdir()
    with tempfile.TemporaryDirectory() as name:  # one that another user may look into, unlike pytest's
        folders = [Path(name) / f"runs-{number}" for number in range(len(REFUSED))]
        for folder in folders:
            for each in ("a", "b"):
                shutil.copytree(stored, folder / "small" / each)
            (folder / "other.zip").write_bytes(b"x" * 1000)
        os.chmod(name, 0o755)
        cases = [(str(folder), *case[:2]) for folder, case in zip(folders, REFUSED, strict=True)]
        done = finished([sys.executable, "-c", PERMISSIONS, json.dumps(cases)])
        for folder, (refused, *_) in zip(folders, REFUSED, strict=True):
            os.chmod(folder / refused, 0o755)
    assert done.returncode == 0, done.stderr
    for (_, mode, states, line), (found, problems) in zip(REFUSED, json.loads(done.stdout), strict=True):
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
