"""A declaration that was written down before its runs, and what a reader can tell from it."""

import datetime
import itertools
import json
import os
import shutil
from pathlib import Path
from typing import get_args

import pytest

import oelm
from oelm.analysis.summary import findings_as_json, findings_of
from oelm.execution.status import study_status, study_tree
from oelm.machine.errors import UserError
from oelm.show.words import say
from oelm.storage.files import SEAL, digest_of, read_sealed, write_sealed
from oelm.storage.ownership import now
from oelm.study.decisions import CHOICES_FILE
from oelm.study.declaration import declared_tree, study_digest
from oelm.study.registration import REGISTRATION_FILE, Standing, changes, register, registration_of
from oelm.study.shelf import Shelf
from stored_runs import hypothesis, sealed_again, small_study, store_study

ARMS = ["trained", "frozen_head_orthogonal"]


def study_of(**changes):
    return small_study(**{"arms": ARMS, "seeds": [0, 1]} | changes)


def longer(steps: int = 60):
    base = study_of().base
    return study_of(base=base | {"training": base["training"] | {"steps": steps}})


def store_runs(folder: Path, study=None, *, started: str | None = None) -> None:
    """Runs that start now, or say that they started then."""
    store_study(study or study_of(), folder, lambda arm, seed, stage, point: 2.0 + 0.1 * seed)
    for file in folder.rglob("status.json"):
        set_status(file, started=started or now())
        sealed_again(file.parent)


def set_status(file: Path, **changes) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def unended(folder: Path, **changes) -> Path:
    """The first of the runs as it was before its end."""
    run = sorted(file.parent for file in folder.rglob("seal.json"))[0]
    for name in ("seal.json", "experiment_result.json"):
        (run / name).unlink()
    set_status(run / "status.json", **{"state": "interrupted"} | changes)
    return run


def standing(folder: Path, study=None):
    return registration_of(study or study_of(), Shelf(folder))


def entries(folder: Path) -> list[dict]:
    return read_sealed(folder / REGISTRATION_FILE)["registrations"]


def test_the_declaration_is_stored_whole_with_time_commit_and_version(tmp_path):
    study = study_of()
    said = register(study, tmp_path / "new")
    (entry,) = entries(tmp_path / "new")
    assert entry["digest"] == study_digest(study)
    assert entry["declaration"]["base"] == study.base
    assert set(entry["declaration"]) >= {"name", "question", "arms", "baseline", "seeds", "tuning", "hypotheses"}
    assert entry["oelm"] == oelm.__version__
    assert {"commit", "dirty"} <= set(entry)
    assert datetime.datetime.fromisoformat(entry["registered"]).utcoffset() == datetime.timedelta(0)
    assert said == (
        f"small: registered at {entry['registered']}, before any run started ({tmp_path / 'new' / REGISTRATION_FILE})"
    )


def test_registering_the_same_again_changes_nothing_and_says_when_it_was(tmp_path):
    register(study_of(), tmp_path)
    before = (tmp_path / REGISTRATION_FILE).read_bytes()
    said = register(study_of(), tmp_path)
    assert f"already registered at {entries(tmp_path)[0]['registered']}, and unchanged since" in said
    store_runs(tmp_path)
    assert "already registered" in register(study_of(), tmp_path)
    assert (tmp_path / REGISTRATION_FILE).read_bytes() == before


# ---- Before and after ----------------------------------------------------------------------------------------------


def test_a_study_is_not_registered_until_it_is(tmp_path):
    assert (standing(tmp_path).standing, standing(tmp_path).line()) == ("none", "not registered")
    register(study_of(), tmp_path)
    assert standing(tmp_path).standing == "waiting"
    assert standing(tmp_path).line().endswith("before any run started; unchanged since")


def test_runs_that_started_after_it_are_told(tmp_path):
    register(study_of(), tmp_path)
    store_runs(tmp_path)
    found = standing(tmp_path)
    assert (found.standing, found.early, found.runs, found.changes, found.later) == ("before", 0, 4, (), ())
    assert "before the first run started (" in found.line()


def test_runs_that_were_there_before_it_are_told(tmp_path):
    store_runs(tmp_path)
    said = register(study_of(), tmp_path)
    assert "after 4 final runs had started; the report says so" in said
    found = standing(tmp_path)
    assert (found.standing, found.early, found.runs) == ("after", 4, 4)
    assert "when final runs had started: 4 of 4" in found.line()


def test_a_run_that_says_it_started_earlier_is_believed(tmp_path):
    register(study_of(), tmp_path)
    store_runs(tmp_path, started=LONG_AGO)
    assert (standing(tmp_path).standing, standing(tmp_path).early) == ("after", 4)
    assert standing(tmp_path).first == LONG_AGO


LONG_AGO = "2026-01-01T00:00:00+00:00"


@pytest.mark.parametrize("content", [None, "{}", json.dumps({"state": "finished", "started": "2099-01-01T00:00:00Z"})])
def test_when_a_run_that_has_ended_started_is_for_its_seal_to_say(tmp_path, content):
    """Runs of an hour ago, copied into a folder that was registered since, without their statuses or with others."""
    store_runs(tmp_path / "made", started=LONG_AGO)
    register(study_of(), tmp_path / "new")
    shutil.copytree(tmp_path / "made", tmp_path / "new", dirs_exist_ok=True)
    for file in tmp_path.glob("new/*/status.json"):
        file.write_text(content) if content else file.unlink()
    found = standing(tmp_path / "new")
    assert (found.standing, found.early, found.first) == ("after", 4, LONG_AGO)


def test_the_dates_of_files_say_nothing(tmp_path):
    """An archive has its own, and an old note in a run's folder is no run."""
    register(study_of(), tmp_path)
    store_runs(tmp_path)
    for seconds, file in zip((0, 1e9, 999999999999999 / 1e3, -1e9), sorted(tmp_path.glob("*/*")), strict=False):
        os.utime(file, (seconds, seconds))
    assert standing(tmp_path).standing == "before"
    unended(tmp_path, started=LONG_AGO)
    assert (standing(tmp_path).standing, standing(tmp_path).early) == ("after", 1)


def test_a_run_that_does_not_say_when_it_started_leaves_it_open(tmp_path):
    register(study_of(), tmp_path)
    store_runs(tmp_path)
    run = next(tmp_path.glob("*/seal.json")).parent
    write_sealed(run / "seal.json", {key: value for key, value in read_sealed(run / "seal.json").items()
                                     if key != "started"})  # fmt: skip
    found = standing(tmp_path)
    assert (found.standing, found.undated, found.runs) == ("undated", 1, 4)
    assert (
        "it cannot be shown that this came before the final runs: 1 of 4 do not record when they started"
        in found.line()
    )
    assert Shelf(tmp_path).damage_lines == []


@pytest.mark.parametrize("lost", ["status.json", "config.json"])
def test_a_run_that_has_not_ended_and_lost_what_says_its_start_leaves_it_open(tmp_path, lost):
    register(study_of(), tmp_path)
    store_runs(tmp_path)
    (unended(tmp_path) / lost).unlink()
    assert (standing(tmp_path).standing, standing(tmp_path).undated) == ("undated", 1)
    (tmp_path / REGISTRATION_FILE).unlink()
    assert "after 4 final runs had started" in register(study_of(), tmp_path)
    assert "when final runs had started: 4 of 4" in standing(tmp_path).line()


def test_a_late_registration_of_runs_without_dates_says_no_date(tmp_path):
    store_runs(tmp_path)
    for file in tmp_path.glob("*/status.json"):
        file.unlink()
        sealed_again(file.parent)
    register(study_of(), tmp_path)
    assert "when final runs had started: 4 of 4; unchanged since" in standing(tmp_path).line()
    store_study(study_of(seeds=[2]), tmp_path, lambda arm, seed, stage, point: 2.0)
    for run in tmp_path.glob("*-s2-*"):
        set_status(run / "status.json", started="2099-01-01T00:00:00+00:00")
        sealed_again(run)
    assert (
        "when final runs had started: 4 of 6; unchanged since" in standing(tmp_path).line()
    )  # a later start is no first


@pytest.mark.parametrize("text", ["", "0001-01-01T00:00:00+23:59", "2026-01-01T00:00:00", "\ud800"])
def test_absurd_times_end_nothing(tmp_path, text):
    register(study_of(), tmp_path)
    store_runs(tmp_path)
    unended(tmp_path, started=text)
    for file in list(tmp_path.glob("*/seal.json"))[:1]:
        tree = read_sealed(file) | {"started": text}
        file.write_text(json.dumps(tree | {SEAL: digest_of(tree)}))
    assert standing(tmp_path).standing in ("undated", "after")
    assert any("registration: registered at" in line for line in study_status(study_of(), tmp_path)[1])
    findings_as_json(findings_of(study_of(), Shelf(tmp_path)))


def test_tuning_may_come_before_it_and_is_told(tmp_path):
    """Tuning runs decide no claim; nor does what they chose, as long as no final run has started."""
    tuned = study_of(tuning={"grid": {"learning_rate": [1e-3, 2e-3]}, "extend": 0})
    store_runs(tmp_path / "made", tuned)
    for final in (tmp_path / "made").glob("*-s[01]-*"):
        shutil.rmtree(final)
    said = register(tuned, tmp_path / "made")
    assert "before any final run started" in said
    found = standing(tmp_path / "made", tuned)
    assert (found.standing, found.runs) == ("before_final", 0)
    assert "before any final run started; tuning had begun; unchanged since" in found.line()


def test_a_study_cannot_pass_its_final_runs_off_as_tuning(tmp_path):
    """It reports the tuning split itself, and tunes nothing."""
    base = study_of().base
    study = study_of(base=base | {"training": base["training"] | {"validation_split": "tune"}})
    store_runs(tmp_path, study)
    register(study, tmp_path)
    assert standing(tmp_path, study).standing == "after"


def test_runs_that_only_wait_have_not_started(tmp_path):
    store_runs(tmp_path)
    for file in tmp_path.glob("*/*"):
        if file.name == "status.json":
            file.write_text(json.dumps({"state": "queued"}))
        elif file.name != "config.json":
            file.unlink()
    assert "before any run started" in register(study_of(), tmp_path)


# ---- Changed -------------------------------------------------------------------------------------------------------


def test_a_changed_declaration_replaces_while_nothing_has_started_and_the_earlier_is_kept(tmp_path):
    register(study_of(), tmp_path)
    said = register(longer(), tmp_path)
    assert "before any run started; changed since " in said
    assert "base.training.steps 40, now 60" in said
    assert [entry["declaration"]["base"]["training"]["steps"] for entry in entries(tmp_path)] == [40, 60]
    store_runs(tmp_path, longer())
    assert standing(tmp_path, longer()).standing == "before"
    assert standing(tmp_path, longer()).changes == ()
    assert standing(tmp_path).changes == (("base.training.steps", 60, 40),)


def test_a_declaration_that_changed_after_the_runs_started_is_compared_with_the_one_before_them(tmp_path):
    register(study_of(), tmp_path)
    store_runs(tmp_path)
    said = register(longer(), tmp_path)
    assert "after 4 final runs had started" in said
    assert "base.training.steps 40, now 60" in said
    found = standing(tmp_path, longer())
    assert (found.standing, found.changes) == ("before", (("base.training.steps", 40, 60),))
    assert [each.runs_then for each in found.later] == [4]
    assert "changed since: base.training.steps 40, now 60; another declaration registered after that" in found.line()


def test_changes_are_told_key_by_key():
    claim = hypothesis("not_worse")
    then = study_of(hypotheses=[claim, hypothesis("better")])
    now = study_of(
        arms=[*ARMS, "frozen_normal"],
        seeds=[0, 1, 2],
        tuning={"grid": {"learning_rate": [1e-3, 2e-3]}},
        hypotheses=[claim | {"margin_percent": 7}],
    )
    found = {key: (one, other) for key, one, other in changes(declared_tree(then), declared_tree(now))}
    assert set(found) == {
        "arms.frozen_normal", "seeds", "tuning.grid.training.learning_rate", "tuning.seeds", "tuning.extend",
        "hypotheses.better", "hypotheses.not_worse.margin_percent",
    }  # fmt: skip
    assert found["hypotheses.not_worse.margin_percent"] == (5, 7)
    assert found["seeds"] == ([0, 1], [0, 1, 2])
    assert found["hypotheses.better"][1] is None


# ---- Damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "damage",
    [
        lambda tree: tree | {"registrations": [{}]},
        lambda tree: tree | {"registrations": [tree["registrations"][0] | {"registered": "yesterday"}]},
        lambda tree: tree | {"format_version": 99},
        None,
    ],
)
def test_a_damaged_file_is_named_everywhere_and_never_replaced(tmp_path, damage):
    register(study_of(), tmp_path)
    store_runs(tmp_path)
    file = tmp_path / REGISTRATION_FILE
    if damage is None:
        file.write_text(file.read_text().replace('"steps": 40', '"steps": 41'))
    else:
        write_sealed(file, damage(read_sealed(file)))
    content = file.read_bytes()
    assert standing(tmp_path).standing == "damaged"
    assert str(file) in standing(tmp_path).line()
    with pytest.raises(UserError, match=REGISTRATION_FILE):
        register(longer(), tmp_path)
    assert file.read_bytes() == content
    assert any(str(file) in line for line in study_status(study_of(), tmp_path)[1])
    assert findings_of(study_of(), Shelf(tmp_path)).provenance["registration"]["problem"].startswith(str(file))


# ---- Where it is shown ---------------------------------------------------------------------------------------------


def test_status_and_analysis_say_it(tmp_path):
    store_runs(tmp_path)
    assert "registration: not registered" in study_status(study_of(), tmp_path)[1]
    register(study_of(), tmp_path)
    (line,) = [line for line in study_status(study_of(), tmp_path)[1] if line.startswith("registration: ")]
    assert "when final runs had started: 4 of 4" in line
    assert study_tree(longer(), tmp_path)["registration"]["changes"] == [
        {"key": "base.training.steps", "registered": 40, "now": 60}
    ]
    tree = findings_as_json(findings_of(study_of(), Shelf(tmp_path)))["provenance"]["registration"]
    assert (tree["standing"], tree["runs_before"], tree["digest"]) == ("after", 4, study_digest(study_of()))


def test_a_choice_without_its_runs_is_tuning_that_had_begun(tmp_path):
    """Its runs may have been deleted since: what they decided was known."""
    tuned = study_of(tuning={"grid": {"learning_rate": [1e-3, 2e-3]}, "extend": 0})
    store_runs(tmp_path / "made", tuned)
    (tmp_path / "new").mkdir()
    shutil.copy(tmp_path / "made" / CHOICES_FILE, tmp_path / "new")
    register(tuned, tmp_path / "new")
    assert standing(tmp_path / "new", tuned).standing == "before_final"


def test_links_among_the_runs_end_nothing(tmp_path):
    register(study_of(), tmp_path)
    store_runs(tmp_path)
    for folder in (tmp_path, next(tmp_path.glob("*/seal.json")).parent):
        (folder / "itself").symlink_to(folder / "itself")
        (folder / "link").symlink_to(folder / "nowhere")
    assert standing(tmp_path).standing == "before"
    assert "registered at" in study_status(study_of(), tmp_path)[1][-2]
    assert len(findings_of(study_of(), Shelf(tmp_path)).unfinished) == 0


def test_half_a_character_is_damage_although_the_seal_fits(tmp_path):
    register(study_of(), tmp_path)
    file = tmp_path / REGISTRATION_FILE
    tree = read_sealed(file) | {"note": "\ud800"}
    file.write_text(json.dumps(tree | {SEAL: digest_of(tree)}))
    assert standing(tmp_path).standing == "damaged"


def test_every_standing_has_its_words():
    facts = {"registered": "R", "first": "F", "early": 1, "runs": 2, "undated": 1}
    for language, each in itertools.product(("en", "zh"), set(get_args(Standing)) - {"none", "damaged"}):
        assert "R" in say(language, f"registration.{each}", **facts)
