"""The command itself, as a process: what it prints, how it ends, and what it never loads."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from oelm.board.guard import is_loopback
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


def test_beyond_loopback_it_warns_and_has_a_secret(tmp_path):
    (tmp_path / "runs").mkdir()
    process = started(tmp_path, "--port", str(free_port()), "--host", "0.0.0.0")
    try:
        assert process.stdout.readline().startswith("warning: 0.0.0.0 can be reached from other machines")
        assert re.fullmatch(r"http://[^/]+:\d+/[\w-]{30,}/ \(Ctrl-C ends it\)\n", process.stdout.readline())
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--runs", "nowhere"], "--runs nowhere: no such folder"),
        (["--lang", "fr"], "--lang fr: en or zh"),
        (["nothing-like-it"], "study 'nothing-like-it': no such file"),
        (["--host", "not a host"], "--host not a host"),
    ],
)
def test_what_a_user_can_get_wrong_is_one_line(tmp_path, words, said):
    done = oelm_command("board", "--no-open", *words, cwd=tmp_path)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("host", "ours"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)]
)
def test_what_loopback_is(host, ours):
    assert is_loopback(host) == ours
