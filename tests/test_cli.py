"""The command line: what it prints where, and how it ends."""

import json
import signal
import subprocess
import sys
import time

import pytest

from oelm.cli import main
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


@pytest.fixture
def answer(monkeypatch, capsys):
    """The exit code and what was printed; in this process, because there are many."""

    def answered(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["oelm", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return answered


# ---- What typer would say, in our words ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["train", "--seed", "-1"], "--seed -1: at least 0"),
        (["train", "--seed", "one"], "--seed one: not a whole number"),
        (["generate", "run", "--temperature", "-0.5"], "--temperature -0.5: at least 0"),
        (["generate", "run", "--seed", str(2**63)], f"--seed {2**63}: at most {2**62}"),
        (["bench", "demo", "--half-width", "wide"], "--half-width wide: not a number"),
        (["run", "demo", "--slots", "0"], "--slots 0: at least 1"),
        (["remote", "lab", "logs", "-n", "0"], "--lines 0: at least 1"),
        (["prepare", "stories", "--workers", "0"], "--workers 0: at least 1"),
        (["train", "--seed"], "--seed: needs a value"),
        (["train", "--sed", "1"], "--sed: no such option; did you mean --seed? (oelm train --help)"),
        (["trian"], "trian: no such verb; did you mean train? (oelm --help)"),
        (["run"], "STUDY: missing (oelm run --help)"),
        (["export", "run"], "--to: missing (oelm export --help)"),
        (["arms", "trained", "more"], "more: one argument too many (oelm arms --help)"),
        (["remote", "lab", "run"], "STUDY: missing (oelm remote HOST run --help)"),
    ],
)
def test_a_wrong_word_is_one_line_in_our_words(words, line, answer):
    assert answer(*words) == (2, "", f"oelm: {line}\n")


def test_without_a_verb_there_is_help(answer):
    code, _, err = answer()
    assert code == 2
    assert "Usage: " in err


# ---- The right thing for another verb --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    """A study, a config, and a folder of two runs, whose files are looked at and no more."""
    folder = tmp_path_factory.mktemp("things")
    (folder / "study.yaml").write_text("question: x\nbase: {preset: tiny}\narms: [trained]\nseeds: [0]\n")
    (folder / "studies").mkdir()
    (folder / "studies" / "demo.yaml").write_text((folder / "study.yaml").read_text())
    (folder / "empty").mkdir()
    (folder / "config.yaml").write_text("preset: tiny\ntraining: {steps: 3}\n")
    for name in ("a", "b"):
        (folder / "runs" / "mine" / name).mkdir(parents=True)
        (folder / "runs" / "mine" / name / "config.json").write_text('{"format_version": 2, "arm": "trained"}')
    (folder / "data").mkdir()
    (folder / "data" / "manifest.json").write_text('{"format_version": 1, "splits": {}}')
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "study.yaml"], "is a study, not the config of one run; run it with: oelm run study.yaml"),
        (["train", "runs/mine"], "is a folder of runs, not a config; give their study: oelm run STUDY.yaml --runs"),
        (["train", "runs/mine/a"], "resume it with the command that started it, --out runs/mine/a"),
        (["train", "data"], "is prepared data, not a config; use it with --data data"),
        (["compare", "runs/mine"], "not a run; give their study: oelm report STUDY.yaml --runs runs/mine"),
        (["compare", "study.yaml"], "is a study, not a run; compare its arms with: oelm report study.yaml"),
        (["diagnose", "runs/mine"], "is a folder of 2 runs, not a run; give single runs: oelm diagnose runs/mine/a"),
        (["generate", "runs/mine"], "is a folder of 2 runs, not a run; give single runs: oelm generate runs/mine/a"),
        (["export", "runs/mine", "--to", "x"], "is a folder of 2 runs, not a run; give single runs: oelm export"),
        (["diagnose", "study.yaml"], "is a study, not a run; see its runs with: oelm status study.yaml"),
        (["generate", "config.yaml"], "is the config of a run, not a run; train it with: oelm train config.yaml"),
        (["logs", "runs/mine"], "give single runs: oelm logs runs/mine/a"),
        (["run", "config.yaml"], "is the config of one run, not a study; train it with: oelm train config.yaml"),
        (["run", "runs/mine/a/config.json"], "is the config of one run, not a study; see its run with: oelm logs"),
        (["run", "runs/mine"], "is a folder of runs, not a study; give their study: oelm run STUDY.yaml --runs"),
        (["status", "runs/mine/a"], "is a run, not a study; see it with: oelm logs runs/mine/a"),
        (["report", "data"], "is prepared data, not a study"),
        (["train", "demo"], "demo: is a study, not the config of one run; run it with: oelm run demo"),
        (["compare", "demo"], "demo: is a study, not a run; compare its arms with: oelm report demo"),
        (["logs", "demo"], "demo: is a study, not a run; see its runs with: oelm status demo"),
        (["diagnose", "demo"], "demo: is a study, not a run; see its runs with: oelm status demo"),
        (["generate", "demo"], "demo: is a study, not a run; see its runs with: oelm status demo"),
        (["export", "demo", "--to", "x"], "demo: is a study, not a run; see its runs with: oelm status demo"),
        (["verify", "config.yaml"], "is the config of one run, not a study; train it with: oelm train config.yaml"),
        (["verify", "runs/mine/a/config.json"], "is the config of one run, not a study; see its run with: oelm verify"),
        (["verify", "runs/mine/a", "--data", "nosuch"], "--data nosuch: no such folder"),
        (["verify", "runs/mine", "--data", "empty"], "--data empty: contains no prepared data"),
        (["compare", "empty"], "empty: is not a run"),
    ],
)  # fmt: skip
def test_what_another_verb_wants_is_named_with_that_verb(things, monkeypatch, words, said, answer):
    monkeypatch.chdir(things)
    code, out, err = answer(*words)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert said in line


@pytest.mark.parametrize(
    "words",
    [["status"], ["status", "demo"], ["report", "demo"], ["archive", "demo", "--to", "a.zip"], ["stop", "demo"],
     ["verify", "demo"], ["logs", "a"], ["run", "demo"], ["run", "demo", "--dry-run"], ["register", "demo"],
     ["bench", "demo"]],
)  # fmt: skip
def test_runs_that_are_not_there_are_no_new_folder(things, monkeypatch, words, answer):
    monkeypatch.chdir(things)
    before = sorted(things.rglob("*"))
    creates = words[0] in ("run", "register", "bench")
    for name in ("typo.zip",) if creates else ("typo.zip", "typo"):
        code, out, err = answer(*words, "--runs", name)
        assert (code, out) == (2, "")
        (line,) = err.splitlines()
        assert line in (f"oelm: {name}: no such archive", f"oelm: --runs {name}: no such folder")
    assert sorted(things.rglob("*")) == before
