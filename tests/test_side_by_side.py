"""Runs side by side, and every difference between them that is not the arm."""

import json
import shutil

import pytest

from oelm.errors import UserError
from oelm.side_by_side import table
from oelm.training.run import train
from small_runs import quiet_execution, small_run
from stored_runs import with_attention


@pytest.fixture(scope="module")
def runs(token_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, arm, settings in (
        ("a", "trained", {}),
        ("b", "frozen_head_orthogonal", {}),
        ("c", "frozen_head_orthogonal", {"learning_rate": 0.5}),
    ):
        train(small_run(arm, data=token_folder, steps=2, **settings), quiet_execution(), out=folder / name)
    return folder


def test_arms_that_differ_in_nothing_else_are_said_to(runs):
    text = table([runs / "a", runs / "b"])
    assert "nothing but the arm differs" in text
    assert "frozen_head_orthogonal" in text


def test_another_learning_rate_is_named(runs):
    assert "differs besides the arm: training.learning_rate is 0.01 / 0.5" in table([runs / "a", runs / "c"])


def test_what_is_no_finished_run_is_refused(runs, tmp_path):
    with pytest.raises(UserError, match="no such run directory"):
        table([runs / "a", runs / "nowhere"])
    with pytest.raises(UserError, match=r"is not a run \(no config.json in it\)"):
        table([tmp_path])
    shutil.copy(runs / "a" / "config.json", tmp_path)
    with pytest.raises(UserError, match="no result"):
        table([tmp_path])


def test_one_run_is_not_compared_with_itself(runs):
    text = table([runs / "a"])
    assert "only one run" in text
    assert "differs" not in text


def test_a_run_of_an_earlier_format_is_compared_by_its_settings_of_now(runs, tmp_path):
    """The same computation, stored by two versions, differs in nothing."""
    older = shutil.copytree(runs / "b", tmp_path / "older")
    config, result = older / "config.json", older / "experiment_result.json"
    config.write_text(json.dumps(with_attention(json.loads(config.read_text())) | {"format_version": 2}))
    (older / "seal.json").unlink()
    numbers = json.loads(result.read_text())
    numbers.pop("fingerprint")
    result.write_text(json.dumps(numbers))
    assert "nothing differs: the runs are one computation" in table([runs / "b", older])
    for file in (config, result):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"arm": "custom"}))
    assert "nothing but the name of the arm differs: the runs are one computation" in table([runs / "b", older])
