"""A study by sample or whole: what is drawn is said, what is damaged is always named, and the exit code tells."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from forging import edit, report, sealed_again
from typer.testing import CliRunner

from oelm.cli import app
from oelm.core.config import stored_fingerprint
from oelm.execution.verification.several import verify_folder
from oelm.machine.errors import UserError
from oelm.storage.files import write_sealed
from oelm.study.archiving import OF_STUDY
from oelm.study.kept_check import CHECK_FILE
from small_runs import oelm_command


@pytest.fixture(scope="module")
def study(tmp_path_factory, trained) -> Path:
    """Three runs that can be recomputed, one in the folder of the grid; one without checkpoints."""
    folder = tmp_path_factory.mktemp("study")
    for name in ("plain", "frozen"):
        shutil.copytree(trained[name], folder / name)
    shutil.copytree(trained["curve"], folder / "tuning" / "curve")
    shutil.copytree(trained["scheduled"], folder / "pulled", ignore=shutil.ignore_patterns("checkpoints", "best"))
    return folder


def looked_at(folder: Path, *, sample: int | None = None, seed: int = 0):
    said: list[str] = []
    return verify_folder(folder, sample=sample, seed=seed, data=None, say=said.append), said


def test_all_runs_are_told_with_the_time_left_and_counted_at_the_end(study):
    done, said = looked_at(study)
    assert [line.partition(":")[0] for line in said] == ["pulled", "[1/3] curve", "[2/3] frozen", "[3/3] plain"]
    assert "not recomputable" in said[0]
    assert "(ETA " in said[1]
    assert "(ETA " in said[2]
    assert done.closing_line() == f"{study}: 4 of 4 runs: 3 bit-equal, 0 differ, 0 damaged, 1 not recomputable"
    assert not done.failed


def test_a_sample_is_drawn_by_its_seed_among_runs_that_can_be_recomputed(study):
    drawn = {}
    for seed in range(6):
        done, said = looked_at(study, sample=1, seed=seed)
        assert said[0] == f"1 of 3 runs with checkpoints, chosen with seed {seed}; --all checks every run"
        assert done.closing_line().endswith("; 2 not checked (--all checks every run)")
        assert done.as_json()["sample"] == {"runs": 1, "seed": seed}
        drawn[seed] = [verdict.path.name for verdict in done.verdicts if verdict.state == "bit-equal"]
    assert len({tuple(names) for names in drawn.values()}) > 1
    again, _ = looked_at(study, sample=1, seed=0)
    assert [verdict.path.name for verdict in again.verdicts if verdict.state == "bit-equal"] == drawn[0]


def test_damaged_runs_are_named_whatever_the_sample_is(study, tmp_path):
    folder = Path(shutil.copytree(study, tmp_path / "study"))
    edit(folder / "plain" / "experiment_result.json", lambda tree: tree.update(val_loss=1.0))
    (folder / "frozen" / "config.json").write_text("[" * 100_000)
    done, said = looked_at(folder, sample=1)
    assert done.failed
    assert {verdict.state for verdict in done.verdicts} == {"damaged", "bit-equal", "not recomputable"}
    assert any(str(folder / "frozen" / "config.json") in line for line in said)
    assert any(f"{folder / 'plain' / 'experiment_result.json'}: damaged: changed since" in line for line in said)


def test_a_run_that_lost_its_config_is_counted_as_damaged(study, tmp_path):
    folder = Path(shutil.copytree(study, tmp_path / "study"))
    (folder / "pulled" / "config.json").unlink()
    done, said = looked_at(folder)
    assert done.failed
    assert done.closing_line() == f"{folder}: 4 of 4 runs: 3 bit-equal, 0 differ, 1 damaged"
    assert any(f"{folder / 'pulled' / 'config.json'}: damaged: missing" in line for line in said)


def test_a_run_copied_as_another_seed_is_told_although_its_loss_can_be_recomputed(study, tmp_path):
    """Nothing that is trained says which seed it came from."""
    folder = tmp_path / "study"
    for name in ("plain", "copy"):
        shutil.copytree(study / "plain", folder / name)
    edit(folder / "copy" / "config.json", lambda tree: tree["seeds"].update(weights=7))
    config = json.loads((folder / "copy" / "config.json").read_text())
    digest = json.loads((folder / "copy" / "environment.json").read_text())["data_digest"]
    identity = {"seeds": config["seeds"], "fingerprint": stored_fingerprint(config, data_digest=digest)}
    edit(folder / "copy" / "experiment_result.json", lambda tree: tree.update(identity))
    sealed_again(folder / "copy")
    done, said = looked_at(folder)
    assert {verdict.path.name: verdict.state for verdict in done.verdicts}["plain"] == "bit-equal"
    assert done.failed
    assert done.as_json()["copies"] == [said[0]]
    assert "report exactly the same losses from the first record to the last: copy, plain;" in said[0]


def test_damaged_files_of_the_study_are_named_and_fail(study, tmp_path):
    folder = tmp_path / "study"
    shutil.copytree(study / "pulled", folder / "pulled")
    for name in OF_STUDY:
        write_sealed(folder / name, {"format_version": 1})
        edit(folder / name, lambda tree: tree.update(more=1))
    done, said = looked_at(folder)
    assert done.failed
    assert [line for line in said for name in OF_STUDY if line.startswith(f"{folder / name}: damaged: ")] == (
        done.damaged_beside
    )
    assert f"; {len(OF_STUDY)} files of the study damaged" in done.closing_line()
    assert done.as_json()["files"] == dict(zip(OF_STUDY, done.damaged_beside, strict=True))


def test_what_a_forger_can_renew_is_named_beside_the_verdict(study, tmp_path):
    """Everything but what the weights give: the curve before its end, times, and what lies beside the runs."""
    folder = Path(shutil.copytree(study, tmp_path / "study"))
    run = folder / "plain"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    first = next(line for line in lines if "val_loss" in line)
    first |= {"val_loss": first["val_loss"] / 2, "seconds": 1e-6}
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    edit(run / "experiment_result.json", lambda tree: tree.update(training_seconds=1.0, mean_step_seconds=1e-6))
    sealed_again(run)
    write_sealed(folder / CHECK_FILE, {"format_version": 1, "results": []})
    done, _ = looked_at(folder)
    assert not done.failed
    reach = done.as_json()["reach"]
    assert {"the records of the curve", "times and memory", CHECK_FILE} <= set(reach["only_sealed"])
    assert reach["recomputed"]
    assert all(words in done.reach_line() for each in reach.values() for words in each)


def test_where_nothing_is_recomputed_that_is_said(study, tmp_path):
    shutil.copytree(study / "pulled", tmp_path / "study" / "pulled")
    done, _ = looked_at(tmp_path / "study")
    assert done.reach()["recomputed"] == []
    assert done.reach_line().startswith("recomputed: nothing. ")


def test_a_folder_without_results_is_said(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match=str(folder)):
            looked_at(folder)


# ---- The command -----------------------------------------------------------------------------------------------------


def test_the_command_says_what_it_found_and_its_exit_code_tells(study, tmp_path):
    done = CliRunner().invoke(app, ["verify", str(study), "--all", "--json"])
    assert done.exit_code == 0, done.stderr
    tree = json.loads(done.stdout)
    assert tree["counts"] == {
        "bit-equal": 3, "within tolerance": 0, "differs": 0, "damaged": 0, "not recomputable": 1,
    }  # fmt: skip
    assert tree["sample"] is None
    assert "[3/3] plain: bit-equal" in done.stderr
    run = Path(shutil.copytree(study / "plain", tmp_path / "run"))
    report(run, 1.5)
    sealed_again(run)
    done = oelm_command("verify", str(run))
    assert done.returncode == 1
    assert f"{run}: differs; validation loss 1.5 reported, " in done.stdout
    assert done.stdout.splitlines()[-1].startswith("recomputed: the reported loss")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [["nowhere"], [".", "--all", "--sample", "2"], ["RUN", "--all"], ["OPEN"]])
def test_what_cannot_be_verified_is_refused_in_one_line(words, study, tmp_path, trained):
    begun = Path(shutil.copytree(trained["plain"], tmp_path / "begun"))
    for name in ("seal.json", "experiment_result.json"):
        (begun / name).unlink()
    edit(begun / "status.json", lambda tree: tree.update(state="interrupted"))
    places = {"RUN": str(study / "plain"), "OPEN": str(begun)}
    done = oelm_command("verify", *[places.get(word, word) for word in words])
    assert done.returncode == 2
    assert done.stderr.startswith("oelm: ")
    assert done.stderr.count("\n") == 1
