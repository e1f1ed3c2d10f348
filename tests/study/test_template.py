"""The study that `oelm new` writes: valid, commented, never over a file that is there. test_wheel.py runs it."""

import re

import pytest

from oelm.machine.errors import UserError
from oelm.study.reading import load_study
from oelm.study.template import TEMPLATE, write_new


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["mine.yaml", "研究"])
def test_what_is_written_is_a_study_of_that_name(name):
    file = write_new(name)
    study = load_study(file)
    assert study.name == file.stem == name.removesuffix(".yaml")
    assert study.base["data"] == "data/stories"
    assert f"oelm run {study.name} --dry-run" in file.read_text(encoding="utf-8")
    assert study.hypotheses


def test_what_it_offers_in_comments_is_valid_too():
    file = write_new("mine")
    text, count = re.subn(r"^# (tuning:|  grid:|  seeds:)", r"\1", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert count == 3
    file.write_text(text, encoding="utf-8")
    assert load_study(file).tuning.grid


def test_every_part_is_explained():
    """Before each key at the top stands a comment."""
    lines = TEMPLATE.read_text(encoding="utf-8").splitlines()
    keys = [number for number, line in enumerate(lines) if re.match(r"\w+:", line)]
    assert len(keys) > 5
    for number in keys:
        assert lines[number - 1].startswith("#") or lines[number].startswith("baseline"), lines[number]


@pytest.mark.parametrize("name", ["a/b", "", "../mine"])
def test_a_name_that_is_none_writes_nothing(tmp_path, name):
    with pytest.raises(UserError, match=r"^name "):
        write_new(name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["mine", "demo"])
def test_nothing_is_written_over(tmp_path, name):
    file = write_new("mine")
    file.write_text("question: my own\n")
    with pytest.raises(UserError, match=f"{name}: is already a study"):
        write_new(name)
    assert file.read_text() == "question: my own\n"
    assert list(file.parent.iterdir()) == [file]


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "mine.yaml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"studies/mine\.yaml: cannot be written \(File exists\)|is already a study"):
        write_new("mine")
    assert not (tmp_path / "elsewhere").exists()
