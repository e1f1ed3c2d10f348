"""A study's archive says what its folder says, in every verb that reads; those that write or want weights refuse it."""

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from alike import differences
from oelm.analysis.summary import findings_as_json, findings_of
from oelm.cli import main
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.study.archives import LIST, runs_folder
from oelm.study.archiving import archive
from oelm.study.reading import load_study
from oelm.study.registration import register
from oelm.study.shelf import Shelf
from small_runs import REPOSITORY
from stored_runs import small_study, store_bench, store_study

TREE = {
    "question": "Does it hold?",
    "base": {
        "model": {"seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4},
        "training": {"steps": 40, "batch_size": 4, "learning_rate": 1e-3},
        "data": "data/small",
    },
    "arms": ["trained", "frozen_head_orthogonal"],
    "seeds": [0, 1, 2],
    "tuning": {"grid": {"learning_rate": [1e-3, 2e-3, 4e-3]}, "seeds": [1000], "extend": 0},
}
FINDINGS = REPOSITORY / "docs" / "findings"


def loss(arm, seed, stage, point):
    rate = dict(point).get("training.learning_rate", 2e-3)
    return 2.0 + 0.01 * seed + (0.02 if arm != "trained" else 0.0) + abs(rate - 2e-3)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A finished study with everything that stands beside its runs, and what an archive leaves out."""
    root = tmp_path_factory.mktemp("stored")
    (root / "mine.yaml").write_text(yaml.safe_dump(TREE))
    study, folder = load_study(root / "mine.yaml"), root / "runs" / "mine"
    register(study, folder)
    store_study(study, folder, loss)
    times = {arm: [0.1] * 9 for arm in TREE["arms"]}
    store_bench(folder, baseline="trained", seconds=times)
    run = RunDirectory(next(iter(Shelf(folder).runs)).directory.path)
    for left_out in (run.best / "model.safetensors", run.checkpoints / "step-000040" / "manifest.json", run.log_file):
        left_out.parent.mkdir(parents=True, exist_ok=True)
        left_out.write_bytes(b"large")
    (folder / "controller.log").write_text("words")
    return root


@pytest.fixture
def place(stored, tmp_path, monkeypatch):
    """A copy, stood in: mine.yaml, runs/mine and its archive."""
    shutil.copytree(stored, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    archive("mine", tmp_path / "runs" / "mine", tmp_path / "mine.zip", declaration=tmp_path / "mine.yaml")
    return tmp_path


@pytest.fixture
def answer(monkeypatch, capsys):
    def answered(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["oelm", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return answered


# ---- What is in it -------------------------------------------------------------------------------------------------


def test_it_holds_what_numbers_are_taken_from_and_nothing_large(place):
    with zipfile.ZipFile(place / "mine.zip") as opened:
        names = set(opened.namelist())
    assert {"registration.json", "choices.json", "bench.json", LIST} <= names
    runs = {name.rpartition("/")[0] for name in names if name.endswith("/seal.json")}
    assert len(runs) == len(Shelf(place / "runs" / "mine").runs) == 2 * 3 + 2 * 3
    assert not any(part in name for name in names for part in ("best", "checkpoints", ".log", "lock"))


def test_made_again_it_has_the_same_bytes_also_from_itself(place, answer):
    before = (place / "mine.zip").read_bytes()
    for source in ("runs/mine", "mine.zip"):
        code, out, _ = answer("archive", "mine.yaml", "--runs", source, "--to", "again.zip", "--force")
        assert (code, out.startswith("again.zip: ")) == (0, True)
        assert (place / "again.zip").read_bytes() == before
    assert answer("archive", "mine.zip", "--to", "of-itself.zip")[0] == 0
    assert (place / "of-itself.zip").read_bytes() == before
    with zipfile.ZipFile(place / "again.zip") as opened:
        opened.extractall(place / "unpacked")
    archive("mine", place / "unpacked", place / "again.zip", declaration=place / "unpacked" / "mine.yaml", force=True)
    assert (place / "again.zip").read_bytes() == before


def test_a_study_that_is_running_is_not_archived(place):
    folder = place / "runs" / "mine"
    run = next(path for path in folder.iterdir() if path.name.startswith("trained"))
    RunDirectory(run).seal_file.unlink()
    RunDirectory(run).result_file.unlink()
    RunDirectory(run).write_status("running")
    with pytest.raises(UserError, match=f"{run.name} is running"):
        archive("mine", folder, place / "other.zip")
    assert not (place / "other.zip").exists()


@pytest.mark.parametrize("target", ["mine.yaml", "runs"])
def test_nothing_else_is_replaced(place, target):
    with pytest.raises(UserError, match="--to"):
        archive("mine", place / "runs" / "mine", place / target, force=True)


def test_an_archive_is_replaced_only_by_who_says_so(place, answer):
    before = (place / "mine.zip").read_bytes()
    run = next(path for path in (place / "runs" / "mine").iterdir() if path.name.startswith("trained"))
    shutil.rmtree(run)
    code, _, err = answer("archive", "mine.yaml", "--to", "mine.zip")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("oelm: --to mine.zip: is already there; ")
    assert (place / "mine.zip").read_bytes() == before
    assert answer("archive", "mine.yaml", "--to", "mine.zip", "--force")[0] == 0
    assert (place / "mine.zip").read_bytes() != before


def test_an_empty_folder_is_no_study(place, answer):
    code, _, err = answer("archive", "mine.yaml", "--runs", "nowhere", "--to", "x.zip")
    assert (code, err) == (2, "oelm: --runs nowhere: no such folder\n")
    Path("nowhere").mkdir()
    code, _, err = answer("archive", "mine.yaml", "--runs", "nowhere", "--to", "x.zip")
    assert (code, err) == (2, "oelm: nowhere: no runs there\n")


# ---- Verbs ---------------------------------------------------------------------------------------------------------


def test_verbs_that_read_take_an_archive_and_the_place_of_the_folder(place, answer):
    said = answer("status", "mine.yaml")
    by_folder = answer("status", "mine.yaml", "--runs", "runs/mine", "--json")[1]
    shutil.move("mine.zip", "runs/mine.zip")
    shutil.rmtree("runs/mine")
    assert answer("status", "mine.yaml") == said
    assert answer("status", "mine.yaml", "--runs", "runs/mine.zip") == said
    assert answer("status", "mine.yaml", "--json")[1] == by_folder.replace("runs/mine", "runs/mine.zip")
    code, out, err = answer("verify", "mine.yaml")
    assert "runs/mine.zip: 12 of 12 runs: 0 differ, 0 damaged, 12 not recomputable" in out
    assert (code, err.count("\n")) == (0, 1)
    assert "an archive contains no checkpoints" in err


@pytest.fixture
def alone(place, answer):
    """What each verb says in the place of the study; then the archive is all that is left, under another name."""
    asked = (("status", "--json"), ("report", "--lang", "en"), ("plan", "--json"))
    said = {words: answer(words[0], "mine.yaml", *words[1:]) for words in asked}
    report = (place / "reports" / "mine" / "report.en.md").read_text()
    for each in place.iterdir():
        if each.name == "mine.zip":
            each.rename("values.zip")
        elif each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink()
    return said, report


def as_of_the_folder(text: str) -> str:
    return text.replace("values.zip", "runs/mine")


def test_an_archive_is_enough_for_every_verb_that_reads_a_study(alone, place, answer):
    said, report = alone
    for study, *runs in (("values.zip",), ("mine", "--runs", "values.zip")):
        for words, (code, out, _) in said.items():
            found = answer(words[0], study, *words[1:], *runs)
            assert (found[0], as_of_the_folder(found[1])) == (code, out), (study, *words)
        assert as_of_the_folder((place / "reports" / "mine" / "report.en.md").read_text()) == report
        shutil.rmtree(place / "reports")
        assert "12 of 12 runs: 0 differ, 0 damaged" in answer("verify", study, *runs)[1]


def test_an_archive_says_which_study_it_is_of(alone, answer):
    code, _, err = answer("report", "other", "--runs", "values.zip")
    assert (code, err.split(":")[1]) == (2, " study 'other'")
    code, _, err = answer("run", "values.zip")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("oelm: values.zip: is an archive, which is read-only; ")


def test_a_study_that_is_here_goes_before_the_one_in_the_archive(place, answer):
    """Whoever names both means what was declared here."""
    (place / "mine.yaml").write_text(yaml.safe_dump(TREE | {"seeds": [0, 1]}))
    for study, count in (("mine.yaml", 4), ("mine.zip", 6)):
        runs = json.loads(answer("status", study, "--runs", "mine.zip", "--json")[1])["runs"]
        assert sum(run["stage"] == "final" for run in runs) == count


def test_an_older_archive_is_of_the_study_that_is_called_so(place, answer):
    archive("demo", place / "runs" / "mine", place / "demo.zip")
    archive("mine", place / "runs" / "mine", place / "older.zip")
    assert answer("plan", "demo.zip")[0] == 0
    code, _, err = answer("report", "older.zip")
    assert (code, err.count("\n")) == (2, 1)
    assert "does not contain the declaration of its study mine" in err
    assert "--runs older.zip" in err


REFUSING = [
    ("run", "mine.yaml", "--dry-run", "--runs", "mine.zip"),
    ("bench", "mine.yaml", "--runs", "mine.zip"),
    ("register", "mine.yaml", "--runs", "mine.zip"),
    ("stop", "mine.yaml", "--runs", "mine.zip"),
    ("logs", "trained-s0", "--runs", "mine.zip"),
    ("diagnose", "mine.zip/trained-s0"),
    ("generate", "mine/trained-s0"),
    ("export", "mine.zip/trained-s0", "--to", "out"),
    ("remote", "host", "pull", "mine.yaml", "--runs", "mine.zip"),
]


def test_verbs_that_write_or_want_more_refuse_it_in_one_line(place, answer):
    for words in REFUSING:
        code, out, err = answer(*words)
        assert (code, out) == (2, ""), words
        assert err.startswith("oelm: mine.zip: is an archive"), words
        assert err.count("\n") == 1


def test_a_damaged_run_is_named_by_its_place_in_the_archive(place, answer):
    folder = place / "runs" / "mine"
    run = next(path for path in folder.iterdir() if path.name.startswith("trained"))
    RunDirectory(run).result_file.write_text("{}")
    archive("mine", folder, place / "mine.zip", force=True)
    code, out, _ = answer("status", "mine.yaml", "--runs", "mine.zip")
    assert code == 0
    assert f"mine.zip/{run.name}/experiment_result.json: damaged: " in out


# ---- Findings that are kept here -----------------------------------------------------------------------------------


@pytest.mark.parametrize("study", sorted(path.name for path in FINDINGS.iterdir() if path.is_dir()))
def test_a_finding_is_an_archive_from_which_its_report_follows_number_for_number(study, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    assert {path.name for path in (FINDINGS / study).iterdir()} >= {"README.md", "report", "runs.zip"}
    assert [path.name for path in (FINDINGS / study).iterdir() if path.is_dir()] == ["report"]
    findings = findings_of(load_study(study), Shelf(runs_folder(FINDINGS / study / "runs")))
    assert not findings.unfinished
    stored = json.loads((FINDINGS / study / "report" / "analysis_results.json").read_text(encoding="utf-8"))
    assert [*differences(json.loads(json.dumps(findings_as_json(findings))), stored)] == []


def test_an_archive_takes_nothing_from_outside_and_leaves_nothing_out(tmp_path):
    folder = tmp_path / "small"
    study = small_study(arms=["trained"], seeds=[0, 1])
    store_study(study, folder, lambda arm, seed, stage, point: 2.5 + 0.01 * seed)
    (tmp_path / "secret").write_text("{}")
    status = next(folder.glob("trained-s0-*/status.json"))
    status.unlink()
    status.symlink_to(tmp_path / "secret")
    with pytest.raises(UserError, match="is a link"):
        archive("small", folder, tmp_path / "a.zip")
    status.unlink()
    next(folder.glob("trained-s1-*/config.json")).unlink()
    with pytest.raises(UserError, match=r"config\.json: damaged: missing"):
        archive("small", folder, tmp_path / "a.zip")
    assert not (tmp_path / "a.zip").exists()


def test_a_study_is_not_taken_for_an_archive_of_its_name(place, answer):
    (place / "studies").mkdir()
    shutil.move("mine.yaml", "studies/mine.yaml")
    shutil.rmtree("runs")
    assert answer("verify", "mine")[2].startswith("oelm: runs/mine: no such folder")


def test_a_report_that_is_kept_is_markdown_with_figures_and_tables():
    listed = subprocess.run(["git", "ls-files", FINDINGS], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    of_reports = {name.rpartition(".")[2] for name in listed.stdout.split() if "/report/" in name}
    assert of_reports <= {"md", "png", "csv", "json"}
