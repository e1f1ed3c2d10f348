"""What prepared data are called, and what is said where they are missing: nothing invented takes their place."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from oelm.analysis.summary import findings_of
from oelm.cli import main
from oelm.core.settings import load_settings
from oelm.data.prepare import prepare
from oelm.data.prepared import name_of_data
from oelm.data.tokens import open_tokens
from oelm.machine.errors import UserError
from oelm.run.training.run import train
from oelm.study.reading import load_study
from oelm.study.shelf import Shelf
from small_runs import quiet_execution
from stored_runs import ENVIRONMENT, small_study, store_study


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("text") / "pydocs"
    folder.mkdir()
    text = "\n\n".join(f"The module number {number} has a function number {number * 7}." for number in range(800))
    (folder / "all.txt").write_text(text)
    return folder


@pytest.fixture(scope="module")
def prepared_once(documents, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "data" / "mine"
    prepare(str(documents), out=folder, tokenizer="bpe:300")
    return folder


@pytest.mark.parametrize(
    ("manifest", "name"),
    [
        ({"corpus": "stories", "source": "300 embedded stories, seed 0"}, "stories"),
        ({"corpus": "tinystories", "source": "/home/somebody/TinyStories"}, "tinystories"),
        ({"corpus": "text", "source": "/home/somebody/pydocs"}, "pydocs"),
        ({"corpus": "text", "source": "book.txt"}, "book.txt"),
        ({"kind": "sentences", "task": "xnli", "language": "zh", "source": {}}, "xnli-zh"),
        ({"kind": "sentences", "task": "sst2", "language": None, "source": {}}, "sst2"),
        ({"task": "pairs", "language": None, "source": {"train": {"place": "/a/reviews/train.tsv"}}}, "reviews"),
        ({"format_version": 1}, "called/"),
        (None, "called/"),
    ],
)
def test_data_are_what_their_manifest_says_and_not_what_their_folder_is_called(manifest, name):
    assert name_of_data(Path("somewhere/called"), manifest) == name


def test_a_study_is_about_the_corpus_that_its_runs_read_whatever_the_folder_is_called(
    prepared_once, tmp_path, monkeypatch
):
    """From training to the report, where the data are gone by then."""
    monkeypatch.chdir(tmp_path)
    study = small_study(arms=["trained", "frozen_head_orthogonal"], seeds=[0, 1])
    store_study(study, tmp_path / "runs", lambda arm, seed, stage, point: 2.5)
    assert findings_of(study, Shelf(tmp_path / "runs")).scope.data == ["small"]  # runs of before it was noted
    shutil.copytree(prepared_once, tmp_path / "data" / "small")
    settings = ("steps=2", "batch_size=2", "seq_len=16", "d_model=16", "num_heads=2", "validate_every=2")
    train(load_settings(data="data/small", assignments=settings).run, quiet_execution(), out=tmp_path / "one")
    noted = json.loads((tmp_path / "one" / "environment.json").read_text())["data_name"]
    assert noted == "pydocs"
    shutil.rmtree(tmp_path / "data")
    shutil.rmtree(tmp_path / "runs")
    monkeypatch.setitem(ENVIRONMENT, "data_name", noted)
    store_study(study, tmp_path / "runs", lambda arm, seed, stage, point: 2.5)
    assert findings_of(study, Shelf(tmp_path / "runs")).scope.data == ["pydocs"]


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as raised:
        open_tokens(folder)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_mistyped_path_names_where_it_was_looked_and_the_closest_that_exists(prepared_once, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("pydocs", "stories"):
        shutil.copytree(prepared_once, tmp_path / "data" / name)
    said = refusal(Path("data/pydosc"))
    assert f"looked in {tmp_path}/data/pydosc" in said
    assert "the closest that exists is data/pydocs" in said
    assert "prepare stories" not in said


def test_the_embedded_stories_are_offered_for_data_stories_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "oelm prepare stories --out data/stories" in refusal(Path("data/stories"))
    for folder in ("data/pydosc", "stories", "data/Stories", "texts/stories", "data/stories/mine"):
        assert "prepare stories" not in refusal(Path(folder)), folder


def test_from_a_folder_below_the_data_of_the_project_are_found(prepared_once, tmp_path, monkeypatch):
    shutil.copytree(prepared_once, tmp_path / "data" / "mine")
    (tmp_path / "notes").mkdir()
    monkeypatch.chdir(tmp_path / "notes")
    assert f"the closest that exists is {tmp_path}/data/mine" in refusal(Path("data/mine"))


@pytest.mark.parametrize("data", ["data/mine", "data/mien"])
@pytest.mark.parametrize("options", [["--dry-run"], []])
def test_a_study_used_from_another_folder_names_the_data_beside_it_and_prepares_none(
    prepared_once, tmp_path, monkeypatch, capsys, data, options
):
    shutil.copytree(prepared_once, tmp_path / "project" / "data" / "mine")
    file = tmp_path / "project" / "studies" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(f"question: a\nbase: {{preset: tiny, data: {data}}}\narms: [trained]\nseeds: [0]\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr("sys.argv", ["oelm", "run", str(file), *options])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert len(said.splitlines()) == 1
    assert f"looked in {tmp_path}/elsewhere/{data}" in said
    assert f"the closest that exists is {tmp_path}/project/data/mine;" in said
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_study_of_any_other_stories_is_not_given_the_embedded_ones(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.yaml").write_text("question: a\nbase: {data: texts/stories}\narms: [trained]\nseeds: [0]\n")
    assert load_study(tmp_path / "mine.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["oelm", "run", "mine.yaml"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert re.search(r"texts/stories: no prepared data there .*oelm prepare FILE_OR_FOLDER", capsys.readouterr().err)
    assert not (tmp_path / "texts").exists()
