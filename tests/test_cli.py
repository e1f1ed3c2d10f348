"""The command line: what it prints where, and how it ends."""

import json
import signal
import subprocess
import sys
import time

from small_runs import VOCABULARY, child_environment, oelm_command


def train_arguments(token_folder, out, *more: str) -> list[str]:
    sizes = ("seq_len=16", "d_model=32", "num_layers=2", f"vocabulary={VOCABULARY}", "batch_size=4", "threads=1")
    pairs = [f"--set={pair}" for pair in (*sizes, *more)]
    return ["train", "--data", str(token_folder), "--out", str(out), *pairs]


def test_train_with_json_prints_one_object_and_nothing_else(token_folder, tmp_path):
    arguments = [*train_arguments(token_folder, tmp_path / "run", "steps=2"), "--json"]
    first, again = (oelm_command(*arguments) for _ in range(2))
    assert json.loads(first.stdout) == json.loads(again.stdout)
    assert json.loads(first.stdout)["steps"] == 2


def test_version_and_unknown_verbs():
    assert oelm_command("--version").stdout.startswith("oelm ")
    unknown = oelm_command("trian")
    assert unknown.returncode == 2
    assert "train" in unknown.stderr


def test_a_closed_terminal_saves_and_can_be_resumed(token_folder, tmp_path):
    arguments = train_arguments(token_folder, tmp_path / "run", "steps=100000", "log_every=1", "validate_every=100000")
    process = subprocess.Popen(
        [sys.executable, "-m", "oelm", *arguments], env=child_environment(), stderr=subprocess.PIPE, text=True
    )
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size) and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGHUP, errors
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "interrupted"
    assert list((tmp_path / "run" / "checkpoints").glob("step-*"))
