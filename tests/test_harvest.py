"""What docs/unfinished packs of runs that go on: all that has ended, once, and enough to go on elsewhere."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from oelm.study.archiving import result_files
from oelm.study.plan import planned
from oelm.study.shelf import Shelf
from small_runs import REPOSITORY
from stored_runs import VOCABULARY, small_study, store_study

HARVEST = REPOSITORY / "docs" / "unfinished" / "cheap_qk" / "harvest.py"
STUDY = small_study(
    arms=["trained", "frozen_normal"], tuning={"grid": {"training.learning_rate": [1e-3, 2e-3]}, "extend": 0}
)


def harvest(act: str, runs: Path, here: Path) -> str:
    command = [sys.executable, HARVEST, act, runs, "--here", here]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def contents(folder: Path) -> dict[str, bytes]:
    """Of the results, as an archive of the study would have them."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in result_files(folder)}


def states(folder: Path) -> list[tuple[str, str]]:
    return [(run.title, run.state) for run in planned(STUDY, Shelf(folder), facts={"vocabulary": VOCABULARY}).runs]


@pytest.fixture
def runs(tmp_path) -> Path:
    """Every run that is planned has ended but those of the last two seeds; one of these has begun."""
    folder = tmp_path / "runs" / STUDY.name
    store_study(STUDY, folder, lambda arm, seed, stage, point: 2.0, leaves=lambda run: run.seed in (3, 4))
    whole = next(folder.glob("trained-s0-*"))
    begun = shutil.copytree(whole, folder / "trained-s3-begun")
    for name in ("seal.json", "experiment_result.json"):
        (begun / name).unlink()
    (whole / "checkpoints").mkdir()
    (whole / "checkpoints" / "model.safetensors").write_bytes(b"weights")
    return tmp_path / "runs"


def test_what_is_packed_and_restored_is_what_an_archive_keeps_of_the_runs_that_have_ended(runs, tmp_path):
    there = contents(runs / STUDY.name)
    ended = {name: content for name, content in there.items() if "begun" not in name}
    (tmp_path / "here").mkdir()
    assert f"{sum(name.endswith('seal.json') for name in ended)} runs" in harvest("pack", runs, tmp_path / "here")
    harvest("restore", tmp_path / "again", tmp_path / "here")
    again = tmp_path / "again" / STUDY.name
    assert {path.relative_to(again).as_posix() for path in again.rglob("*") if path.is_file()} == ended.keys()
    assert contents(again) == ended
    shutil.rmtree(runs / STUDY.name / "trained-s3-begun")
    assert states(again) == states(runs / STUDY.name)


def test_a_later_harvest_holds_only_what_is_new_and_leaves_the_earlier_ones_as_they_were(runs, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    harvest("pack", runs, here)
    first = (here / "harvest-001.tar.xz").read_bytes()
    assert harvest("pack", runs, here) == "nothing new\n"
    store_study(STUDY, runs / STUDY.name, lambda arm, seed, stage, point: 2.0, leaves=lambda run: run.seed != 3)
    (runs / STUDY.name / "choices.json").write_text("{}")
    harvest("pack", runs, here)
    assert sorted(path.name for path in here.iterdir()) == ["harvest-001.tar.xz", "harvest-002.tar.xz"]
    assert (here / "harvest-001.tar.xz").read_bytes() == first
    with tarfile.open(here / "harvest-002.tar.xz") as tar:
        folders = {Path(name).parent.name.rsplit("-", 1)[0] for name in tar.getnames()}
    assert folders == {STUDY.name, "trained-s3", "frozen_normal-s3"}
    harvest("restore", tmp_path / "again", here)
    assert (tmp_path / "again" / STUDY.name / "choices.json").read_text() == "{}"


def test_restoring_leaves_what_is_there_alone(runs, tmp_path):
    here, again = tmp_path / "here", tmp_path / "again" / STUDY.name
    here.mkdir()
    harvest("pack", runs, here)
    name = next(runs.glob("*/trained-s0-*")).name
    (again / name).mkdir(parents=True)
    (again / name / "config.json").write_text("begun here")
    (again / "choices.json").write_text("chosen here")
    harvest("restore", tmp_path / "again", here)
    assert [path.name for path in (again / name).iterdir()] == ["config.json"]
    assert (again / "choices.json").read_text() == "chosen here"
    assert len(list(again.glob("*/seal.json"))) == len(list(runs.glob("*/*/seal.json"))) - 1
