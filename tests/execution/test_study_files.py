"""What a controller writes beside the runs before they start: the registration, and what tuning chose. Real runs."""

import json
import shutil
from pathlib import Path

import pytest
from test_controller import run, write_study

from oelm.storage.files import read_sealed

GRID = {"grid": {"training.learning_rate": [0.003, 0.01]}, "set": {"training.steps": 3}, "seeds": [9], "extend": 0}


@pytest.fixture(scope="module")
def registered(token_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("registered")
    file = write_study(folder, token_folder, seeds=[0], arms=["trained"], tuning=GRID)
    code, out = run(folder, "run", file, "--register")
    assert code == 0, out
    return folder, file, out


@pytest.fixture
def copied(registered, tmp_path):
    """The same, to do things to."""
    folder = shutil.copytree(registered[0], tmp_path / "folder")
    return folder, folder / registered[1].name


def runs_of(folder: Path) -> Path:
    return folder / "runs" / "little"


def finals(folder: Path) -> list[Path]:
    return [path.parent for path in runs_of(folder).glob("*/config.json")]


def another_tuning_result(folder: Path) -> None:
    """The point that was not chosen is computed again, and is the better one by far."""
    chosen = read_sealed(runs_of(folder) / "choices.json")["decisions"][0]["decided"]["values"]
    for path in (runs_of(folder) / "tuning").iterdir():
        rate = json.loads((path / "config.json").read_text())["training"]["learning_rate"]
        if rate == chosen["training.learning_rate"]:
            shutil.rmtree(path)


def test_the_declaration_is_registered_before_the_first_run_starts(registered):
    folder, file, out = registered
    assert out.index("little: registered at") < out.index(": started on")
    (entry,) = read_sealed(runs_of(folder) / "registration.json")["registrations"]
    assert entry["runs_then"] == 0
    code, out = run(folder, "status", file)
    assert code == 0, out
    assert f"registration: registered at {entry['registered']}, before the first run started (" in out
    assert "; unchanged since\n" in out


def test_choices_are_stored_before_the_first_run_that_goes_by_them(registered):
    folder, _, out = registered
    (decision,) = read_sealed(runs_of(folder) / "choices.json")["decisions"]
    assert out.index("chosen, and stored in") < out.index("trained s0: started on")
    assert decision["final_runs_then"] == 0
    (final,) = finals(folder)
    assert (runs_of(folder) / "choices.json").stat().st_mtime_ns <= (final / "settings.json").stat().st_mtime_ns
    training = json.loads((final / "config.json").read_text())["training"]
    assert training["learning_rate"] == decision["decided"]["values"]["training.learning_rate"]


def test_a_lost_tuning_run_is_computed_again_and_chooses_nothing(copied):
    folder, file = copied
    before = (runs_of(folder) / "choices.json").read_bytes()
    another_tuning_result(folder)
    code, out = run(folder, "run", file)
    assert code == 0, out
    assert "was chosen at" in out
    assert out.count(": started on") == 1
    assert len(finals(folder)) == 1
    assert (runs_of(folder) / "choices.json").read_bytes() == before


def test_damaged_choices_stop_new_runs_and_the_way_out_works(copied, token_folder):
    folder, file = copied
    stored = runs_of(folder) / "choices.json"
    stored.write_text(stored.read_text().replace("0.01", "0.02"))
    code, out = run(folder, "run", file)
    assert code == 0, out  # nothing is missing, so nothing is lost
    assert "choices.json: damaged: changed since it was sealed" in out
    more = write_study(folder, token_folder, seeds=[0, 1], arms=["trained"], tuning=GRID)
    code, out = run(folder, "run", more, "--dry-run")
    assert "choices.json: damaged: changed since it was sealed; no run is started" in out
    assert "nothing to start now" in out
    code, out = run(folder, "run", more)
    assert code == 2, out
    (line,) = out.splitlines()
    assert line.endswith("restore the file, or delete it to choose again from the present tuning runs")
    assert len(finals(folder)) == 1
    stored.unlink()
    code, out = run(folder, "run", more)
    assert code == 0, out
    assert len(finals(folder)) == 2
    assert read_sealed(stored)["decisions"][0]["final_runs_then"] == 1


def test_an_edited_study_is_told_before_it_is_run(copied, token_folder):
    folder, _ = copied
    edited = write_study(folder, token_folder, seeds=[0], arms=["trained"], steps=5)
    line = "training.steps 4, now 5"
    code, out = run(folder, "run", edited, "--dry-run")
    assert code == 0, out
    assert line in out
    _, out = run(folder, "status", edited)
    assert line in out
    assert "; changed since: " in out


def test_one_run_that_cannot_be_read_does_not_end_the_controller(copied, token_folder):
    folder, _ = copied
    more = write_study(folder, token_folder, seeds=[0, 1], arms=["trained"], tuning=GRID)
    seal = finals(folder)[0] / "seal.json"
    started = json.loads(seal.read_text())["started"]
    seal.unlink()
    seal.symlink_to("nowhere")
    code, out = run(folder, "run", more)
    assert code == 0, out
    assert f"{seal.relative_to(folder)}: damaged: a link to nothing; it will be run again" in out
    assert out.count(": finished, validation loss") == 2
    assert json.loads(seal.read_text())["started"] == started  # known since then, however often it is made


def test_a_run_that_was_not_registered_is_so_before_its_first_final_run(token_folder, tmp_path):
    file = write_study(tmp_path, token_folder, seeds=[0], arms=["trained"])
    code, out = run(tmp_path, "run", file)
    assert code == 0, out
    (entry,) = read_sealed(runs_of(tmp_path) / "registration.json")["registrations"]
    (final,) = finals(tmp_path)
    assert entry["registered"] <= json.loads((final / "seal.json").read_text())["started"]


def test_a_study_that_cannot_start_is_registered_or_not_as_its_user_likes(tmp_path):
    file = write_study(tmp_path, tmp_path / "no data", seeds=[0], arms=["trained"])
    code, out = run(tmp_path, "run", file)
    assert code == 2, out
    assert not (tmp_path / "runs").exists()
    code, out = run(tmp_path, "register", file)
    assert code == 0, out
    assert "before any run started (runs/little/registration.json)" in out
