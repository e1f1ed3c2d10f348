"""The verbs that begin: what `oelm studies` lists, when text is prepared unasked. test_wheel.py runs the demo."""

import inspect
import json
import shutil
from pathlib import Path

import pytest

from oelm.cli import getting_started
from oelm.cli.getting_started import demo, embedded_text_elsewhere, new, prepare_embedded_text, studies
from oelm.data.prepare import prepare
from oelm.execution.controller import data_facts
from oelm.machine.errors import UserError
from oelm.study.catalogue import PACKAGED
from oelm.study.plan import data_folders
from stored_runs import small_study


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def listed(capsys):
    def entries() -> dict[str, dict]:
        studies(json_output=True)
        return {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["studies"]}

    return entries


def test_both_kinds_are_listed_and_one_here_replaces_one_of_oelms(tmp_path, listed, capsys):
    new("mine")
    (tmp_path / "studies" / "demo.yaml").write_text((tmp_path / "studies" / "mine.yaml").read_text())
    (tmp_path / "reports" / "mine").mkdir(parents=True)
    capsys.readouterr()
    found = listed()
    assert set(found) == {"mine", *(file.stem for file in PACKAGED.glob("*.yaml"))}
    assert found["mine"] == {
        "name": "mine",
        "where": "studies/mine.yaml",
        "question": "Can the query and key projections of a small GPT stay frozen?",
        "size": "3 arms x 3 seeds",
        "runs": "no runs here",
        "report": "report in reports/mine",
    }
    assert found["demo"]["where"] == "studies/demo.yaml"
    assert found["qk_freeze"]["where"] == "comes with oelm"
    assert found["qk_freeze"]["size"] == "3 arms x 8 seeds after tuning"
    studies()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * len(found)
    assert any("studies/mine.yaml; 3 arms x 3 seeds; no runs here; report in reports/mine" in line for line in lines)


@pytest.mark.parametrize("content", [b"\xff", b"question: x\n"])
def test_a_file_that_is_no_study_is_listed_with_what_is_wrong(tmp_path, listed, content):
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "odd.yaml").write_bytes(content)
    entry = listed()["odd"]
    assert entry["problem"].startswith("not a valid study: studies/odd.yaml: ")
    assert "\n" not in entry["problem"]
    assert "size" not in entry


@pytest.fixture(scope="module")
def few_stories(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("few") / "stories"
    prepare("stories", out=folder, stories=300)
    return folder


@pytest.fixture
def asked(few_stories, monkeypatch) -> list[dict]:
    """What the corpus was asked to be prepared with, each time; every answer is a copy of the same few stories."""
    settings: list[dict] = []

    def copied(*arguments, **options) -> dict:
        bound = inspect.signature(prepare).bind(*arguments, **options)
        bound.apply_defaults()
        settings.append({key: value for key, value in bound.arguments.items() if key not in ("out", "progress")})
        shutil.copytree(few_stories, bound.arguments["out"])
        return json.loads((few_stories / "manifest.json").read_text())

    monkeypatch.setattr("oelm.data.prepare.prepare", copied)
    return settings


@pytest.mark.parametrize(
    ("data", "is_there", "is_prepared"),
    [("data/stories", False, True), ("data/stories", True, False), ("data/tinystories", False, False)],
)
def test_only_the_embedded_text_is_prepared_unasked(tmp_path, asked, data, is_there, is_prepared):
    if is_there:
        (tmp_path / data).mkdir(parents=True)
    assert prepare_embedded_text(small_study(base={"preset": "tiny", "data": data})) is is_prepared
    assert (tmp_path / data / "manifest.json").exists() is is_prepared
    assert len(asked) == is_prepared


@pytest.mark.parametrize("named", ["base", "arm"])
def test_a_dry_run_plans_from_a_copy_of_the_embedded_text_and_leaves_nothing(tmp_path, asked, named):
    """The runs are those that `oelm run` would start, because data is known by its content."""
    base = small_study().base | {"data": "data/stories"}
    study = small_study(base=base, arms={"trained": {"set": {"data": "data/stories"} if named == "arm" else {}}})
    with embedded_text_elsewhere(study) as readable:
        then = data_facts(readable)
        assert readable.name == study.name
        assert not (tmp_path / "data").exists()
    assert not Path(data_folders(readable)[0]).exists()
    prepare_embedded_text(study)
    assert (then.model, then.digest) == (data_facts(study).model, data_facts(study).digest)
    first, second = asked
    assert first == second
    with embedded_text_elsewhere(study) as readable:
        assert readable == study


def test_the_demo_says_what_is_missing_before_it_trains(tmp_path, monkeypatch):
    monkeypatch.setattr("oelm.show.report.LIBRARIES", ("no_such_library",))
    monkeypatch.setattr(getting_started, "prepare_embedded_text", lambda study: pytest.fail("began"))
    with pytest.raises(UserError, match="a report needs no_such_library: "):
        demo()
    assert not list(tmp_path.iterdir())
