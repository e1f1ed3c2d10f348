"""S7: control characters in stored text, in logs, in arguments and from a server are shown, never passed on."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from oelm.execution.remote.connection import relay
from oelm.execution.remote.hosts import Server
from oelm.execution.table import PlainLines
from oelm.machine.answers import one_line_errors
from oelm.machine.visible import visible
from oelm.run.directory import RunDirectory
from oelm.run.training.journal import Journal
from oelm.study.reading import load_study
from stored_runs import store_study

ACTING = "\x1b[2J\x1b]0;title\x07 \x9b31m \x7f \u202egnp.exe \x08 \r over"
SHOWN = r"\x1b[2J\x1b]0;title\x07 \x9b31m \x7f \u202egnp.exe \x08"


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    """A folder with a study whose first run failed with such words, and whose logs are full of them."""
    place = tmp_path_factory.mktemp("study")
    (place / "studies").mkdir()
    sizes = {"vocabulary": 64, "seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4}
    tree = {"question": ACTING, "base": {"model": sizes, "training": {"steps": 40, "batch_size": 4}, "data": "none"}}
    tree |= {"arms": {"trained": {"label": ACTING}, "frozen_normal": {}}, "seeds": [0, 1]}
    (place / "studies" / "odd.yaml").write_text(yaml.safe_dump(tree))
    folder = place / "runs" / "odd"
    declared = load_study(place / "studies" / "odd.yaml")
    store_study(declared, folder, lambda arm, seed, stage, point: float("nan") if seed else 2.0)
    for directory in map(RunDirectory, folder.iterdir()):
        status = json.loads(directory.status_file.read_text())
        directory.status_file.write_text(
            json.dumps(status | ({"error": ACTING} if status["state"] == "failed" else {}))
        )
        directory.log_file.write_text(f"2026-01-01 {ACTING}\n" * 3)
    return place


def is_shown(text: str) -> bool:
    return visible(text) == text


def test_status_and_logs_show_them(study, without_torch):
    status = without_torch("status", "odd", cwd=study)
    assert SHOWN in status.out
    run = next((study / "runs" / "odd").glob("trained-s1*"))
    logs = without_torch("logs", run, cwd=study)
    assert logs.out.count(r"\x1b[2J\x1b]0;title\x07 \x9b31m") == 3
    machine = without_torch("status", "odd", "--json", cwd=study)
    assert ACTING in {each.get("error") for each in json.loads(machine.out)["runs"]}
    for said in (status, logs, machine):
        assert said.code == 0, said.text
        assert is_shown(said.text)


REFUSED = [
    ["status", ACTING], ["run", ACTING], ["report", ACTING], ["report", "odd", "--lang", ACTING], ["logs", ACTING],
    ["train", "--preset", ACTING], ["train", "--arm", ACTING], ["train", "--set", f"{ACTING}=1"],
    ["train", "--name", ACTING], ["train", "--out", ACTING], ["train", ACTING], ["prepare", ACTING],
    [ACTING], [f"--{ACTING}"], ["status", f"--{ACTING}"], ["status", "odd", ACTING],
    ["run", "odd", "--arms", ACTING], ["run", "odd", "--on", ACTING], ["stop", ACTING], ["remote", ACTING, "check"],
    ["remote", "host", ACTING], ["remote", "host", "check", f"-{ACTING}"],
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refusals_repeat_words_visibly(study, without_torch, number):
    words = [word.replace("\0", "") for word in REFUSED[number]]
    said = without_torch(*words, cwd=study)
    assert said.code == 2, said.text
    assert r"\x1b" in said.err
    assert is_shown(said.text)
    assert "Traceback" not in said.text


def test_an_unexpected_error_is_shown_visibly(capsys):
    with pytest.raises(SystemExit), one_line_errors("oelm", command=["oelm"]):
        raise RuntimeError(ACTING)
    said = capsys.readouterr().err
    assert is_shown(said)
    assert SHOWN in said


def test_a_runs_journal_and_a_controllers_lines_show_them(tmp_path, capsys):
    journal = Journal(tmp_path / "training.log")
    journal.say(ACTING)
    journal.progress(ACTING)
    PlainLines(None).say(ACTING)
    said = capsys.readouterr().out
    logged = (tmp_path / "training.log").read_bytes().decode()
    assert said.count(SHOWN) >= 2
    assert logged.count(SHOWN) == 2
    assert is_shown(said)
    assert is_shown(logged)


def test_what_a_server_prints_is_shown_as_it_comes(tmp_path, monkeypatch, capsys):
    """A character cut in two by the network is still one character."""
    program = f"import sys, time\nwrite = sys.stdout.buffer.write\nfor part in {_halves(ACTING + ' 第二行')!r}:\n"
    program += "    write(part); sys.stdout.flush(); time.sleep(0.02)\n"
    (tmp_path / "ssh").write_text(f"#!{sys.executable}\n{program}")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    ended = relay(Server("lab", "lab", "oelm", None, None, None), "oelm.execution.remote.on_server", "{}")
    said = capsys.readouterr().out
    assert ended.code == 0
    assert SHOWN in said
    assert said.endswith("第二行")
    assert is_shown(said)


def _halves(text: str) -> list[bytes]:
    content = text.encode()
    return [content[:-4], content[-4:]]
