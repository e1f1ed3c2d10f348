"""Which study a name means: a file here before one of the package, by name or by the path that documents print."""

import re

import pytest

from oelm.machine.errors import UserError
from oelm.study.catalogue import PACKAGED, is_named, known_studies, study_file
from oelm.study.reading import load_study


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(folder, name: str, content: str = "question: mine\n"):
    (folder / "studies").mkdir(exist_ok=True)
    file = folder / "studies" / f"{name}.yaml"
    file.write_text(content)
    return file


@pytest.mark.parametrize("source", ["demo", "studies/demo.yaml", "./studies/demo.yaml"])
def test_in_an_empty_folder_a_name_means_the_packages(empty_folder, source):
    assert study_file(source) == PACKAGED / "demo.yaml"
    assert load_study(source).name == "demo"


@pytest.mark.parametrize("source", ["demo", "studies/demo.yaml"])
def test_a_file_here_wins(empty_folder, source):
    written(empty_folder, "demo")
    assert study_file(source).read_text() == "question: mine\n"
    assert known_studies()["demo"].parent.name == "studies"
    assert known_studies()["demo"].parent != PACKAGED


def test_a_file_anywhere_is_named_by_its_path(empty_folder):
    (empty_folder / "other.yaml").write_text("question: other\n")
    assert study_file("other.yaml").read_text() == "question: other\n"
    assert not is_named("other")


@pytest.mark.parametrize("source", ["nothing", "elsewhere/demo.yaml", "studies/nothing.yaml", "demo.yaml", "../demo"])
def test_what_is_no_study_is_named_with_those_that_are(empty_folder, source):
    written(empty_folder, "mine")
    with pytest.raises(UserError) as refused:
        study_file(source)
    said = re.sub(r"; did you mean demo\?", "", str(refused.value))
    assert said.startswith(f"study {source!r}: no such file; in studies/: mine; oelm comes with demo, ")
    assert "\n" not in str(refused.value)


def test_a_name_like_that_of_a_study_is_asked_about(empty_folder):
    written(empty_folder, "mine")
    with pytest.raises(UserError, match=r"^study 'mien': no such file; did you mean mine\?"):
        study_file("mien")


def test_those_here_come_first_and_each_name_once(empty_folder):
    for name in ("zeta", "demo"):
        written(empty_folder, name)
    names = list(known_studies())
    assert names[:2] == ["demo", "zeta"]
    assert len(names) == len(set(names)) == 1 + len(list(PACKAGED.glob("*.yaml")))
