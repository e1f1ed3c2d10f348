"""The list of settings: all of them, as the models define them, and found by any part of their names."""

import json

import pytest

from oelm.core.config import PRESETS, Encoder, Model, Run, Settings
from oelm.core.keys import all_keys, keys
from oelm.core.settings import full_key, known_keys, load_settings
from oelm.machine.errors import UserError
from small_runs import oelm_command


def test_every_setting_is_there_with_a_meaning():
    listed = {each.key for each in all_keys()}
    moves = {key for key in known_keys() if key.endswith(".moves")}
    gone = {key for key in known_keys() if key.endswith((".share_of", ".base_scale"))}  # kept in stored configs alone
    assert listed >= set(known_keys()) - moves - gone
    assert not listed & gone
    assert {f"{key}.{part}" for key in moves for part in ("kind", "steps", "fraction", "order")} <= listed
    assert all(each.meaning for each in all_keys())
    assert all(full_key(each.key) == each.key for each in all_keys())  # what --set takes


@pytest.mark.parametrize("model", [Model(), Encoder()], ids=["gpt", "encoder"])
def test_the_default_is_the_models_own(model):
    settings = Settings(run=Run(model=model))
    kind = "encoder" if isinstance(model, Encoder) else "gpt"
    for each in all_keys():
        if each.model in (None, kind) and not each.key.endswith((".steps", ".fraction", ".order")):
            value = settings.execution if each.key.startswith("execution.") else settings.run
            for part in each.key.removeprefix("execution.").split("."):
                value = getattr(value, part)
            assert each.default == value, each.key


BEYOND = {"at least": -1, "above": 0, "at most": 1, "below": 0}


def test_a_value_beyond_its_bounds_is_refused():
    tried = 0
    for each in all_keys():
        if each.model == "encoder" or ".moves." in each.key:
            continue
        for bound in each.bounds:
            word, _, number = bound.rpartition(" ")
            with pytest.raises(UserError, match=each.key.replace(".", r"\.")):
                load_settings(assignments=[f"{each.key}={float(number) + BEYOND[word]:g}"])
            tried += 1
    assert tried > 40


def test_a_part_of_a_name_finds_its_keys():
    assert {each.key for each in keys("learning_rate")} == {"training.learning_rate"}
    assert [each.key for each in keys("beta")] == ["training.beta1", "training.beta2"]
    assert {each.key.partition(".")[0] for each in keys("training")} == {"training"}
    assert {each.key for each in keys("query")} == {each.key for each in keys("model.parts.query")}
    with pytest.raises(UserError, match=r"keys trainig: no setting begins with that; did you mean training\?"):
        keys("trainig")


def test_a_preset_shows_its_own_values():
    for preset, run in PRESETS.items():
        (found,) = keys("training.steps", preset=preset)
        assert found.default == run.training.steps
    (dropout,) = keys("model.dropout", preset="fine-tuning")
    assert (dropout.default, dropout.model) == (0.1, None)
    with pytest.raises(UserError, match=r"preset: unknown name 'tinny'; did you mean tiny\?"):
        keys(preset="tinny")


def test_the_verb_prints_them_for_people_and_for_machines():
    done = oelm_command("keys", "gradient_clip")
    assert "training.gradient_clip = 1.0  (number above 0, or null)" in done.stdout
    assert "--set KEY=VALUE" in done.stdout
    assert "oelm keys --preset tiny" in done.stdout  # what a run takes without a file
    (found,) = json.loads(oelm_command("keys", "gradient_clip", "--json").stdout)["keys"]
    assert (found["key"], found["default"], found["bounds"]) == ("training.gradient_clip", 1.0, ["above 0"])
    own = oelm_command("keys", "arm")  # which has an option of its own
    assert own.stdout.startswith("arm = ")
    assert "hosen with --arm, not with --set" in own.stdout
    assert "--set KEY=VALUE" not in own.stdout
    refused = oelm_command("keys", "gradient_clop")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "oelm: keys gradient_clop: no setting begins with that; did you mean gradient_clip?\n"
