"""What a run with training.head_scores records, and that it is the same run as one without."""

import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file

from oelm.core.config import fingerprint, stored_form
from oelm.core.probes.examples import held_out_examples
from oelm.core.probes.probe import probe_of
from oelm.core.settings import load_settings, settings_of, stored_run, written_out
from oelm.machine.errors import UserError
from oelm.models.heads.gpt import gpt_scores, recorded_on
from oelm.models.heads.kinds import NAMES
from oelm.models.heads.scores import keys_of
from oelm.run.directory import RunDirectory
from oelm.run.stored_models.loading import load_stored
from oelm.run.training.run import train
from small_runs import quiet_execution, small_run

TRAINING = {"steps": 6, "validate_every": 2, "validation_sequences": 4, "final_validation_sequences": 4}


def trained(data, out, **settings):
    run = small_run("frozen_half", data=data, **TRAINING | settings)
    run = run.model_copy(update={"model": run.model.model_copy(update={"dropout": 0.1})})
    return train(
        run, quiet_execution(checkpoint_every=2, keep_checkpoints=5, trackers=["tensorboard"]), out=out
    ).directory


@pytest.fixture(scope="module")
def two(token_folder, tmp_path_factory):
    """The same run without and with head scores, with dropout, so that random numbers are drawn between them."""
    home = tmp_path_factory.mktemp("runs")
    return [trained(token_folder, home / str(on), head_scores=on) for on in (False, True)]


def records(directory, name="val_loss"):
    lines = map(json.loads, directory.metrics_file.read_text().splitlines())
    return [record for record in lines if name in record]


def test_a_run_that_records_heads_is_the_same_run_with_the_same_weights(two, token_folder):
    plain, scored = (load_file(each.stored_checkpoints()[-1] / "model.safetensors") for each in two)
    assert plain.keys() == scored.keys()
    assert all((plain[name] == scored[name]).all() for name in plain)
    losses = [[record["val_loss"] for record in records(each)] for each in two]
    assert losses[0] == losses[1]
    assert len({json.loads(each.result_file.read_text())["fingerprint"] for each in two}) == 1
    assert two[0].config_file.read_bytes() == two[1].config_file.read_bytes()
    on, off = (small_run(data=token_folder, head_scores=each) for each in (True, False))
    assert fingerprint(on, data_digest="d") == fingerprint(off, data_digest="d")
    assert stored_run(stored_form(on), name="config.json") == off
    before = two[0].metrics_file.read_bytes()
    trained(token_folder, two[0].path, head_scores=True)  # it is finished, and not run again for its heads
    assert two[0].metrics_file.read_bytes() == before


def test_every_validation_records_what_a_probe_of_its_weights_finds(two):
    assert all("head_scores" not in record for record in records(two[0]))
    found = records(two[1])
    assert [record["step"] for record in found] == [2, 4, 6]
    stored = load_stored(two[1].stored_checkpoints()[-1])
    scores = gpt_scores(stored.gpt, recorded_on(stored.run))
    assert tuple(found[-1]["head_scores"]) == NAMES
    for name in NAMES:
        assert np.allclose(found[-1]["head_scores"][name], scores.scores[name], atol=6e-4)
    assert two[1].last_head_scores() == found[-1]["head_scores"]


def test_a_resumed_run_records_the_same_heads(two, token_folder, tmp_path):
    again = tmp_path / "again"
    shutil.copytree(two[1].path, again)
    directory = RunDirectory(again)
    for path in (directory.result_file, directory.seal_file, *directory.stored_checkpoints()[1:]):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    directory.write_status("interrupted")
    trained(token_folder, again, head_scores=True)
    assert [record["head_scores"] for record in records(directory)[-2:]] == [
        record["head_scores"] for record in records(two[1])[-2:]
    ]


def test_settings_hand_it_on_to_the_process_that_trains():
    settings = load_settings(preset="tiny", assignments=["head_scores=true"])
    assert settings.run.training.head_scores
    assert settings_of(written_out(settings), name="settings.json") == settings


def test_an_encoder_and_a_model_that_is_too_small_are_refused(token_folder, tmp_path):
    with pytest.raises(UserError, match=r"training\.head_scores: is for a GPT"):
        load_settings(preset="fine-tuning", assignments=["head_scores=true"])
    with pytest.raises(UserError, match=r"training\.head_scores: a record has room for 1,024 heads at most"):
        load_settings(preset="tiny", assignments=["head_scores=true", "num_layers=257"])
    run = small_run(data=token_folder, head_scores=True)
    short = run.model_copy(update={"model": run.model.model_copy(update={"seq_len": 6})})
    with pytest.raises(UserError, match=r"training\.head_scores: telling"):
        train(short, quiet_execution(), out=tmp_path / "short")


def test_a_probe_is_scored_where_its_examples_ask():
    """A head that attends to what followed the key is one of induction there; other positions do not count."""
    run = small_run(data="probe:recall?pairs=2,3&length=16&vocabulary=64")
    scored = recorded_on(run)
    assert scored.asked_BT.sum() == len(scored.tokens_BT) * 5 / 2
    answers = held_out_examples(probe_of(run.data), "val", range(len(scored.tokens_BT)), seed=0).asked_BT
    keys = keys_of(scored)
    assert keys.counted.sum() > 0.4 * scored.asked_BT.sum()  # not where the first token is the key, or asks
    for sequence, place in np.argwhere(keys.counted):
        found = scored.tokens_BT[sequence][keys.of_kind["induction"][sequence, place]]
        assert answers[sequence, place] in found
    text = recorded_on(small_run())
    assert text.asked_BT is None
