"""A study that confirms another has its arms, claims and margins, and no seed that anybody has seen."""

from pathlib import Path

import pytest
import yaml

from oelm.cli.getting_started import new
from oelm.machine.errors import UserError
from oelm.storage.files import RUNS
from oelm.study.catalogue import PACKAGED
from oelm.study.declaration import declared_tree
from oelm.study.reading import load_study
from oelm.study.registration import register
from stored_runs import store_study


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(name: str, **changes) -> None:
    new(name)
    file = f"studies/{name}.yaml"
    with open(file, encoding="utf-8") as stream:
        tree = yaml.safe_load(stream) | changes
    with open(file, "w", encoding="utf-8") as stream:
        yaml.safe_dump(tree, stream)


def seeds_of(name: str) -> set[int]:
    study = load_study(name)
    return {*study.seeds, *(study.tuning.seeds if study.tuning else ())}


@pytest.mark.parametrize("name", sorted(file.stem for file in PACKAGED.glob("*.yaml")))
def test_only_the_seeds_differ(name):
    new(None, confirm=name)
    first, second = (declared_tree(load_study(each)) for each in (name, f"{name}-confirmed"))
    assert not seeds_of(name) & seeds_of(f"{name}-confirmed")
    for tree in (first, second):
        tree.pop("name")
        tree["seeds"] = len(tree["seeds"])
        if tree["tuning"]:
            tree["tuning"]["seeds"] = len(tree["tuning"]["seeds"])
    assert first == second


def test_seeds_that_were_edited_away_were_used_too():
    tuning = {"grid": {"learning_rate": [1e-3, 2e-3]}, "seeds": [5], "extend": 0}
    write("mine", seeds=[0, 1, 2, 3], tuning=tuning)
    register(load_study("mine"), RUNS / "mine")
    write("other", seeds=[2, 11])
    other = load_study("other").model_copy(update={"name": "mine"})
    store_study(other, RUNS / "mine", lambda *_: 2.0)
    new(None, confirm="mine")
    assert load_study("mine-confirmed").seeds == [12, 13, 14, 15]
    assert load_study("mine-confirmed").tuning.seeds == [16]


def test_the_file_says_what_it_confirms_and_none_is_replaced():
    write("mine")
    new(None, confirm="mine")
    new(None, confirm="mine")
    new("again", confirm="studies/mine.yaml")
    for name in ("mine-confirmed", "mine-confirmed-2", "again"):
        text = Path(f"studies/{name}.yaml").read_text(encoding="utf-8")
        assert text.startswith("# Confirms mine (declaration ")
        assert f"oelm run {name}" in text
        assert load_study(name).name == name
    with pytest.raises(UserError, match="already a study"):
        new("again", confirm="mine")


def test_a_study_that_is_not_there_cannot_be_confirmed():
    with pytest.raises(UserError, match="nothing"):
        new(None, confirm="nothing")
    with pytest.raises(UserError, match="oelm new NAME"):
        new(None)
