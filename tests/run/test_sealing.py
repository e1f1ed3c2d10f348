"""A number that was changed after the run is never taken for what the run computed."""

import builtins
import errno
import itertools
import json
import math
import os
import shutil

import pytest

from faults.runs import stored_tensors, write_tokens
from oelm.analysis.summary import findings_of
from oelm.core.config import fingerprint
from oelm.execution.status import overview, study_status
from oelm.run.directory import RunDirectory
from oelm.run.sealing import end_of
from oelm.run.training.journal import Journal
from oelm.run.training.run import _ended_before, train
from oelm.storage.files import Damaged, Unreadable, read_sealed, write_sealed
from oelm.study.shelf import Shelf, read_stored
from small_runs import quiet_execution, small_run
from stored_runs import hypothesis, sealed_again, small_study, store_study, without_seal

BOUND = ("config.json", "environment.json", "parameters.json", "metrics.jsonl", "experiment_result.json")
TREATMENT = "frozen_head_orthogonal"


def small(**changes):
    return small_study(arms=["trained", TREATMENT], seeds=[0, 1, 2, 3], hypotheses=[hypothesis()], **changes)


def losses(arm, seed, stage, point):
    return 2.5 + 0.001 * seed + (0.01 + 0.0001 * seed**2) * (arm == TREATMENT)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "runs"
    store_study(small(), folder, losses)
    return folder


@pytest.fixture
def runs(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "runs")


def treated(folder, seed: int = 2):
    return next(path for path in sorted(folder.iterdir()) if path.name.startswith(f"{TREATMENT}-s{seed}-"))


def rewrite(file, **changes):
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def assert_damaged(folder, run, file: str):
    """Named where one looks, part of no number, and wanted again."""
    stored = read_stored(run)
    assert stored.state == "damaged"
    assert stored.damage.startswith(f"{run / file}: damaged: ")
    study = small()
    plan, lines = study_status(study, folder)
    assert any(stored.damage in line for line in lines)
    assert any(stored.damage in line for line in overview(folder.parent))
    findings = findings_of(study, Shelf(folder))
    assert findings.arms[TREATMENT].losses == {seed: losses(TREATMENT, seed, "", ()) for seed in (0, 1, 3)}
    assert ("damaged", {"line": stored.damage}) in findings.notes
    assert findings.verdicts[0].outcome == "undecided"
    assert [run.state for run in findings.unfinished] == ["damaged"]
    assert [each.seed for each in plan.runs if each.loss is None] == [2]


def flip(file):
    content = bytearray(file.read_bytes())
    place = next(index for index in range(len(content) // 2, len(content)) if chr(content[index]).isdigit())
    content[place] = ord("1") if content[place] != ord("1") else ord("2")
    file.write_bytes(bytes(content))


INJURIES = {
    "a digit changed": flip,
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-20]),
    "a space added": lambda file: file.write_bytes(file.read_bytes() + b" "),
    "gone": lambda file: file.unlink(),
}


@pytest.mark.parametrize(
    ("file", "injury"),
    [*((file, "cut") for file in BOUND[1:]), *(("metrics.jsonl", injury) for injury in INJURIES if injury != "cut")],
)
def test_a_sealed_run_with_a_changed_file_is_damaged(runs, file, injury):
    run = treated(runs)
    INJURIES[injury](run / file)
    assert_damaged(runs, run, file)


def test_a_changed_config_makes_its_run_damaged(runs):
    """A space is enough; where the config cannot be read it is named, and the run is missing."""
    run = treated(runs)
    INJURIES["a space added"](run / "config.json")
    assert_damaged(runs, run, "config.json")
    INJURIES["cut"](run / "config.json")
    assert any(line.startswith(f"{run / 'config.json'}: damaged: ") for line in study_status(small(), runs)[1])
    assert findings_of(small(), Shelf(runs)).arms[TREATMENT].losses.keys() == {0, 1, 3}


def test_a_seal_that_is_changed_or_gone_is_damage(runs):
    run = treated(runs)
    rewrite(run / "seal.json", step=3)
    assert_damaged(runs, run, "seal.json")
    (run / "seal.json").unlink()
    assert_damaged(runs, run, "seal.json")


LINKS = {"nowhere": "a link to nothing", "itself": "a link to itself"}


@pytest.mark.parametrize("file", ["metrics.jsonl", "seal.json"])
@pytest.mark.parametrize("target", LINKS)
def test_a_link_that_cannot_be_followed_is_named_as_that(runs, file, target):
    run = treated(runs)
    (run / file).unlink()
    (run / file).symlink_to(file if target == "itself" else target)
    assert_damaged(runs, run, file)
    if file == "seal.json" or target == "nowhere":
        assert read_stored(run).damage == f"{run / file}: damaged: {LINKS[target]}"


@pytest.mark.parametrize("file", ["seal.json", "metrics.jsonl"])
def test_a_file_that_may_not_be_read_is_named_and_stays_where_it_is(runs, monkeypatch, file):
    """Whoever may write in the folder could set it aside: it may well be what was stored."""
    run = treated(runs)
    refuse(monkeypatch, run / file)
    assert_damaged(runs, run, file)
    assert read_stored(run).damage == f"{run / file}: damaged: cannot be read (Permission denied)"
    with pytest.raises(Unreadable):
        _ended_before(RunDirectory(run), Journal(run / "training.log"))
    assert (run / file).exists()


def refuse(monkeypatch, path):
    """As the kernel does to anybody but root."""
    opened, opened_by_number = builtins.open, os.open

    def checked(given):
        if str(given) == str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(given))

    monkeypatch.setattr(builtins, "open", lambda file, *rest, **more: checked(file) or opened(file, *rest, **more))
    monkeypatch.setattr(os, "open", lambda file, *rest, **more: checked(file) or opened_by_number(file, *rest, **more))


@pytest.mark.parametrize("lost", ["seal.json", "status.json", None])
def test_a_run_that_is_made_again_keeps_its_first_start(runs, lost):
    """Its first result was there to be seen."""
    run = treated(runs)
    started = json.loads((run / "status.json").read_text())["started"]
    flip(run / "metrics.jsonl")
    if lost:
        (run / lost).unlink()
    assert _ended_before(RunDirectory(run), Journal(run / "training.log")) is None
    assert RunDirectory(run).status()["started"] == started


def test_the_first_start_is_bound_by_the_seal(runs):
    run = treated(runs)
    started = json.loads((run / "status.json").read_text())["started"]
    assert end_of(RunDirectory(run)).started == started
    rewrite(run / "seal.json", started="2020-01-01T00:00:00+00:00")
    assert_damaged(runs, run, "seal.json")


def test_a_config_that_is_gone_is_named_wherever_one_looks(runs):
    run = treated(runs)
    (run / "config.json").unlink()
    line = f"{run / 'config.json'}: damaged: missing"
    assert line in study_status(small(), runs)[1]
    assert line in overview(runs.parent)
    findings = findings_of(small(), Shelf(runs))
    assert ("unreadable", {"line": line}) in findings.notes
    assert findings.arms[TREATMENT].losses.keys() == {0, 1, 3}
    with pytest.raises(Damaged, match=r"config\.json: damaged: missing"):
        end_of(RunDirectory(run))
    (run / "config.json").symlink_to("nowhere")
    assert f"{run / 'config.json'}: damaged: a link to nothing" in study_status(small(), runs)[1]


def test_a_file_that_came_after_the_seal_is_damage(runs):
    run = treated(runs)
    (run / "predictions.json").write_text(json.dumps({"labels": [0], "predicted": [1]}))
    assert_damaged(runs, run, "predictions.json")
    with pytest.raises(Damaged, match="was added after the run was sealed"):
        end_of(RunDirectory(run))


def test_predictions_that_do_not_give_the_accuracy_are_damage_however_they_are_sealed(changed):
    for predictions in ({"labels": [0, 1], "predicted": [0, 0]}, {"labels": [], "predicted": []}):
        run = changed(accuracy=0.75)
        (run / "predictions.json").write_text(json.dumps(predictions))
        sealed_again(run)
        with pytest.raises(Damaged, match="not what the accuracy was counted from"):
            end_of(RunDirectory(run))


# ---- A result against the rest, whatever its seal says -------------------------------------------------------------

WRONG = {
    "a smaller loss": {"val_loss": 0.5},
    "a loss and its perplexity": {"val_loss": 0.5, "perplexity": math.exp(0.5)},
    "a perplexity": {"perplexity": 3.0},
    "no perplexity": {"perplexity": None},
    "another arm": {"arm": "trained"},
    "other seeds": {"seeds": {"weights": 7, "projections": 7, "data": 7}},
    "fewer steps": {"steps": 3},
    "another rate": {"learning_rate": 0.5},
    "another split": {"validation_split": "tune"},
    "another computation": {"fingerprint": "0123456789"},
    "other counts": {"frozen": 5},
    "another training loss": {"train_loss": 1.0},
    "an accuracy that is not the mean of its difficulties": {
        "accuracy": 0.5, "accuracy_by_difficulty": {"2": 1.0, "4": 0.5},
    },
    "a best loss above the last": {"best_val_loss": 2.9, "best_perplexity": math.exp(2.9)},
    "a best loss at the last step that is not the last": {
        "best_val_loss": 1.0, "best_perplexity": math.exp(1.0), "best_step": 40,
    },
    "infinite": {"val_loss": math.inf},
    "not a number": {"val_loss": math.nan},
    "below zero": {"val_loss": -3.0},
    "true": {"val_loss": True},
    "null": {"val_loss": None},
    "text": {"val_loss": "2.5"},
    "a list": {"val_loss": [2.5]},
    "steps as text": {"steps": "40"},
    "seconds below zero": {"training_seconds": -1.0},
}  # fmt: skip
# With another number of held-out sequences for the reported loss, only the seal and `oelm verify` know it.
SAME_SEQUENCES = {"validation_sequences": 6, "final_validation_sequences": 6}


@pytest.fixture(scope="module")
def consistent(tmp_path_factory):
    study = small()
    base = study.base | {"training": study.base["training"] | SAME_SEQUENCES}
    folder = tmp_path_factory.mktemp("consistent")
    store_study(small(base=base), folder, losses)
    return treated(folder)


@pytest.fixture
def changed(consistent, tmp_path):
    """Copies of the run, with other entries of its result."""
    numbers = itertools.count()

    def copied(**changes):
        run = shutil.copytree(consistent, tmp_path / str(next(numbers)))
        if changes:
            rewrite(run / "experiment_result.json", **changes)
        return run

    return copied


FORMS = pytest.mark.parametrize("form", [without_seal, sealed_again])


@FORMS
def test_a_result_that_contradicts_its_run_is_damaged_however_it_is_sealed(changed, form):
    for changes in WRONG.values():
        run = changed(**changes)
        form(run)
        with pytest.raises(Damaged, match=str(run / "experiment_result.json")):
            end_of(RunDirectory(run))


def test_a_loss_is_a_number_of_at_least_zero_whatever_the_rest_says(changed):
    for loss in (-3.0, True, None, "2.5", [2.5]):
        with pytest.raises(Damaged, match="damaged: val_loss: "):
            end_of(RunDirectory(sealed_again(changed(val_loss=loss))))


@FORMS
def test_what_is_no_result_or_another_runs_is_damaged(changed, whole, form):
    foreign = (treated(whole, seed=1), next(whole.glob("trained-s2-*")))
    contents = [(each / "experiment_result.json").read_text() for each in foreign]
    for content in ("", "{}", "[]", "null", "{", '{"val_loss": 2.5}', "[" * 100_000, *contents):
        run = changed()
        (run / "experiment_result.json").write_text(content)
        form(run)
        assert read_stored(run).state == "damaged", content[:30]


def test_the_same_result_sealed_or_not_counts_and_is_told_apart(changed):
    run = changed()
    assert read_stored(run).is_sealed
    without_seal(run)
    assert (read_stored(run).state, read_stored(run).is_sealed) == ("finished", False)


def test_a_sealed_file_of_its_own_shows_every_edit(tmp_path):
    file = tmp_path / "x.json"
    write_sealed(file, {"b": [1.5, None], "a": "ü"})
    assert read_sealed(file) == {"a": "ü", "b": [1.5, None]}
    file.write_text(json.dumps(json.loads(file.read_text()), indent=7, sort_keys=True))
    assert read_sealed(file)  # layout is not content
    for content in ({"a": "u"}, {"b": [1.5, 0]}, {"c": 1}, {"seal": "0" * 64}):
        file.write_text(json.dumps(json.loads(file.read_text()) | content))
        with pytest.raises(Damaged, match=r"x\.json: damaged: "):
            read_sealed(file)
        write_sealed(file, {"b": [1.5, None], "a": "ü"})


# ---- Run again -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    run = small_run(data=write_tokens(folder / "data"), steps=12)
    outcome = train(run, quiet_execution(), out=folder / "run")
    return run, folder / "run", outcome


def again(trained, tmp_path):
    """A copy of the finished run, to be changed, and how to run the same command again."""
    run, path, _ = trained
    copy = shutil.copytree(path, tmp_path / "run")
    return copy, lambda: train(run, quiet_execution(), out=copy)


def numbers(result):
    return {key: value for key, value in result.items() if "seconds" not in key and "second" not in key}


def assert_the_same(trained, outcome, path):
    _, before, first = trained
    assert not outcome.was_finished
    ignored = {"peak_memory_bytes": 0, "resumes": 0}
    assert numbers(outcome.result) | ignored == numbers(first.result) | ignored
    last = sorted((before / "checkpoints").iterdir())[-1].name
    for name in ("model.safetensors", "optimizer.safetensors"):
        one, other = (folder / "checkpoints" / last / name for folder in (before, path))
        assert stored_tensors(one) == stored_tensors(other)
    assert read_stored(path).is_sealed


def test_a_real_run_is_sealed_and_the_same_command_leaves_it_alone(trained):
    run, path, outcome = trained
    stored = read_stored(path)
    assert (stored.state, stored.is_sealed, stored.result) == ("finished", True, outcome.result)
    assert outcome.result["fingerprint"] == fingerprint(run, data_digest=stored.data_digest)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert train(run, quiet_execution(), out=path).was_finished
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("injury", ["a digit changed", "gone"])
def test_a_damaged_result_is_made_again_from_the_last_checkpoint(trained, tmp_path, injury):
    path, same_command = again(trained, tmp_path)
    INJURIES[injury](path / "experiment_result.json")
    outcome = same_command()
    assert_the_same(trained, outcome, path)
    assert outcome.result["resumes"] == 1
    if injury != "gone":
        assert (path / "damaged" / "1" / "experiment_result.json").exists()


@pytest.mark.parametrize("file", ["metrics.jsonl", "seal.json"])
def test_a_run_whose_course_is_damaged_is_made_again_from_the_start(trained, tmp_path, file):
    path, same_command = again(trained, tmp_path)
    INJURIES["cut"](path / file)
    outcome = same_command()
    assert_the_same(trained, outcome, path)
    assert outcome.result["resumes"] == 0
    assert (path / "damaged" / "1" / file).exists()
    assert "set aside in" in (path / "training.log").read_text()


def test_a_checkpoint_that_is_not_the_sealed_one_ends_no_run_again(trained, tmp_path):
    path, same_command = again(trained, tmp_path)
    (path / "experiment_result.json").unlink()
    manifest = sorted((path / "checkpoints").iterdir())[-1] / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()), indent=1))
    outcome = same_command()
    assert_the_same(trained, outcome, path)
    assert outcome.result["resumes"] == 0


def test_damage_found_twice_is_kept_twice(trained, tmp_path):
    path, same_command = again(trained, tmp_path)
    for number in ("1", "2"):
        INJURIES["cut"](path / "experiment_result.json")
        same_command()
        assert (path / "damaged" / number / "experiment_result.json").exists()


def test_a_folder_that_is_no_runs_is_left_alone(trained, tmp_path):
    run, _, _ = trained
    other = tmp_path / "model"
    other.mkdir()
    (other / "config.json").write_text('{"hidden_size": 3}')
    with pytest.raises(Damaged, match="not a run's config"):
        train(run, quiet_execution(), out=other)
    assert (other / "config.json").read_text() == '{"hidden_size": 3}'


def test_a_run_that_lost_its_seal_and_its_status_is_damaged(runs):
    run = treated(runs)
    (run / "seal.json").unlink()
    (run / "status.json").unlink()
    assert_damaged(runs, run, "seal.json")
