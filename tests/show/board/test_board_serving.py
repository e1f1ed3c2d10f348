"""The command itself, as a process: what it prints, how it ends, and what it never loads."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from oelm.show.board.guard import is_loopback
from oelm.show.board.serving import serve
from oelm.show.board.state import Board
from oelm.study.archiving import archive
from oelm.study.reading import load_study
from small_runs import child_environment, free_port, oelm_command
from stored_runs import hypothesis, small_study, store_study


def started(folder, *words):
    command = [sys.executable, "-m", "oelm", "board", "--no-open", *words]
    return subprocess.Popen(
        command, cwd=folder, env=child_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_it_prints_its_address_answers_loads_no_torch_and_ends_quietly(tmp_path):
    store_study(small_study(hypotheses=[hypothesis()]), tmp_path / "runs" / "small", lambda *_: 3.0)
    process = started(tmp_path, "--port", str(free_port()), "--lang", "zh")
    try:
        line = process.stdout.readline()
        address = re.match(r"(http://127\.0\.0\.1:\d+/)\?lang=zh \(Ctrl-C ends it\)\n", line)[1]
        for path in ("", "data/overview", "data/study?name=small", "data/curves?name=small", "page/plotly.min.js"):
            with urllib.request.urlopen(address + path, timeout=60) as answer:
                assert answer.status == 200
        maps = Path(f"/proc/{process.pid}/maps")
        if maps.exists():
            assert not re.search("libtorch|matplotlib", maps.read_text())
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    assert not os.listdir(tmp_path / "runs" / "small")[0].startswith(".")  # and it wrote nothing
    assert sorted(os.listdir(tmp_path)) == ["runs"]


@pytest.fixture(scope="module")
def pulled(tmp_path_factory):
    """A study that is declared here, its runs in a folder that is called as it is, and an archive of them."""
    here = tmp_path_factory.mktemp("here")
    model = {"seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4}
    base = {"model": model, "training": {"steps": 40, "batch_size": 4}, "data": "data/small"}
    declaration = {"question": "Does it hold?", "base": base, "arms": ["trained", "frozen_orthogonal"], "seeds": [0, 1]}
    file = here / "studies" / "small.yaml"
    file.parent.mkdir()
    file.write_text(json.dumps(declaration))
    store_study(load_study(file), here / "pulled" / "small", lambda *_: 3.0)
    archive("small", here / "pulled" / "small", here / "some.zip")
    return here


@contextlib.contextmanager
def opened(folder, *words):
    process = started(folder, "--port", str(free_port()), *words)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


@pytest.mark.parametrize("runs", ["pulled/small", "some.zip"])
def test_a_folder_called_as_a_study_and_an_archive_are_opened_as_that_study(pulled, runs):
    with opened(pulled, "--runs", runs) as process:
        assert "?study=small (Ctrl-C ends it)" in process.stdout.readline()


@pytest.mark.parametrize("words", [["values.zip"], ["small", "--runs", "values.zip"], []])
def test_an_archive_with_its_study_is_enough(pulled, words, tmp_path):
    """In a folder without anything else; without words as one of the studies in runs/."""
    packed = tmp_path / ("values.zip" if words else "runs/values.zip")
    packed.parent.mkdir(exist_ok=True)
    archive("small", pulled / "pulled" / "small", packed, declaration=pulled / "studies" / "small.yaml")
    with opened(tmp_path, *words) as process:
        name, line = "small" if words else "values", process.stdout.readline()
        assert ("?study=small" in line) == bool(words), line or process.stderr.read()
        address = re.match(r"http://127\.0\.0\.1:\d+/", line)[0]
        with urllib.request.urlopen(f"{address}data/study?name={name}", timeout=60) as answer:
            found = json.loads(answer.read())
        assert found.get("problem") is None
        assert (found["question"], len(found["rows"])) == ("Does it hold?", 4)


@pytest.mark.parametrize("verb", ["board", "report", "status", "verify"])
def test_the_folder_around_that_of_the_runs_is_named_as_such(pulled, verb):
    done = oelm_command(verb, "small", "--runs", "pulled", cwd=pulled)
    assert done.returncode == 2
    assert done.stderr.strip() == "oelm: --runs pulled: its runs are in pulled/small; use --runs pulled/small"


def test_beyond_loopback_it_warns_and_has_a_secret(tmp_path):
    (tmp_path / "runs").mkdir()
    with opened(tmp_path, "--host", "0.0.0.0") as process:
        assert process.stdout.readline().startswith("warning: 0.0.0.0 can be reached from other machines")
        assert re.fullmatch(r"http://[^/]+:\d+/[\w-]{30,}/ \(Ctrl-C ends it\)\n", process.stdout.readline())


def test_a_ctrl_c_ends_it_from_the_moment_that_it_says_so(tmp_path):
    """Earlier, Python may drop the interrupt: wherever an object is being freed, it only prints it."""
    said = []

    def say(line):
        said.append(line)
        signal.raise_signal(signal.SIGINT)

    turn = sys.getswitchinterval()
    try:
        serve(Board(tmp_path), host="127.0.0.1", port=free_port(), language=None, opens=False, say=say)
    finally:
        sys.setswitchinterval(turn)
    assert len(said) == 1
    assert said[0].endswith("(Ctrl-C ends it)")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--runs", "nowhere"], "--runs nowhere: no such folder"),
        (["--lang", "fr"], "--lang fr: en or zh"),
        (["nothing-like-it"], "study 'nothing-like-it': no such file"),
        (["--host", "not a host"], "--host not a host"),
        (["--runs", "notes.md"], "notes.md: is neither a folder of runs nor an archive written by `oelm archive`"),
    ],
)
def test_what_a_user_can_get_wrong_is_one_line(tmp_path, words, said):
    (tmp_path / "notes.md").write_text("notes\n")
    done = oelm_command("board", "--no-open", *words, cwd=tmp_path)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_what_loopback_is():
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0")] == [True, True, True, False]
