"""The command line: what it prints where, and how it ends."""

import json
import sys

import pytest

from oelm.cli import main
from small_runs import VOCABULARY, oelm_command


def test_train_with_json_prints_one_object_and_nothing_else(token_folder, tmp_path):
    sizes = ("seq_len=16", "d_model=32", "num_layers=2", f"vocabulary={VOCABULARY}", "batch_size=4", "threads=1")
    pairs = [f"--set={pair}" for pair in (*sizes, "steps=2")]
    arguments = ["train", "--data", token_folder, "--out", tmp_path / "run", *pairs, "--json"]
    first, again = (oelm_command(*arguments) for _ in range(2))
    assert json.loads(first.stdout) == json.loads(again.stdout)
    assert json.loads(first.stdout)["steps"] == 2


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


# ---- What the parser refuses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["train", "--seed", "-1"], ["--seed", "0"]),
        (["bench", "demo", "--half-width", "wide"], ["--half-width", "number"]),
        (["remote", "lab", "logs", "-n", "0"], ["--lines", "1"]),
        (["train", "--sed", "1"], ["--sed", "--seed"]),
        (["trian"], ["trian", "train"]),
        (["export", "run"], ["--to"]),
        (["compare", "a", "b"], ["oelm report STUDY", "oelm board"]),
    ],
)
def test_a_wrong_word_is_one_line_that_names_it_and_what_it_takes(words, named, answer):
    code, out, err = answer(*words)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert all(each in line for each in named)


def test_without_a_verb_there_is_help_and_the_version_is_told(answer):
    code, _, err = answer()
    assert code == 2
    assert "Usage: " in err
    assert answer("--version")[1].startswith("oelm ")


# ---- What a verb cannot use ------------------------------------------------------------------------------------------


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
        (["train", "runs/mine"], "runs/mine: is a folder, not a config file"),
        (["train", "demo"], "demo: no such config file"),
        (["diagnose", "runs/mine"], "runs/mine: neither a run directory nor a checkpoint"),
        (["generate", "demo"], "demo: no such folder; give a run directory"),
        (["export", "empty", "--to", "x"], "empty: neither a run directory nor a checkpoint"),
        (["logs", "runs/mine"], "could be runs/mine/a, runs/mine/b"),
        (["run", "runs/mine"], "is a folder; give the study's name or file"),
        (["verify", "runs/mine/a", "--data", "nosuch"], "--data nosuch: no such folder"),
        (["verify", "runs/mine", "--data", "empty"], "--data empty: contains no prepared data"),
    ],
)
def test_a_path_that_a_verb_cannot_use_is_one_line(things, monkeypatch, words, said, answer):
    monkeypatch.chdir(things)
    code, out, err = answer(*words)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert said in line


@pytest.mark.parametrize("words", [["train", "study.yaml"], ["run", "config.yaml"], ["run", "runs/mine/a/config.json"]])
def test_a_file_of_another_kind_is_refused_by_its_keys(things, monkeypatch, words, answer):
    monkeypatch.chdir(things)
    code, out, err = answer(*words)
    assert (code, out) == (2, "")
    assert "unknown key" in err
    assert all(line.startswith(f"oelm: {words[1]}: ") for line in err.splitlines())


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
