"""Runs that classify: accuracy and every prediction are recomputed with the loss."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from forging import edit, sealed_again

from oelm.core.settings import load_settings
from oelm.data.prepare_sentences import prepare_sentences
from oelm.execution.verification.recomputing import Recomputation
from oelm.run.training.run import train
from sentence_sources import nli_folder
from small_encoders import loadable_encoder
from small_runs import quiet_execution

pytest.importorskip("transformers", reason="needs pip install 'oelm[hf]'")


@pytest.fixture(scope="module")
def fine_tuned(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("fine tuned")
    source, encoder = nli_folder(root / "nli", train=60, val=200), loadable_encoder(root / "encoder")
    prepare_sentences(str(source), out=root / "data", encoder=str(encoder), task="pairs")
    given = {"steps": 6, "batch_size": 7, "learning_rate": 1e-2, "validate_every": 3}
    settings = load_settings(
        preset="fine-tuning", data=str(root / "data"), assignments=[f"{key}={value}" for key, value in given.items()]
    )
    train(settings.run, quiet_execution(), out=root / "run")
    return root / "run"


@pytest.fixture
def run(fine_tuned, tmp_path) -> Path:
    return Path(shutil.copytree(fine_tuned, tmp_path / "run"))


def exchange(run: Path, pairs: int) -> None:
    """As many right answers made wrong as wrong ones made right, so that the accuracy stays."""

    def change(tree: dict) -> None:
        labels, predicted = tree["labels"], tree["predicted"]
        right = [place for place, label in enumerate(labels) if predicted[place] == label][:pairs]
        wrong = [place for place, label in enumerate(labels) if predicted[place] != label][:pairs]
        for place in right:
            predicted[place] = (labels[place] + 1) % 3
        for place in wrong:
            predicted[place] = labels[place]

    edit(run / "predictions.json", change)
    sealed_again(run)


def verdict(run: Path):
    return Recomputation().verdict(run)


def test_loss_and_predictions_are_recomputed_to_the_last_bit(fine_tuned):
    said = verdict(fine_tuned)
    assert (said.state, said.reason, said.other_machine) == ("bit-equal", "", ())


def test_exchanged_predictions_are_found_where_the_accuracy_and_every_digest_fit(run):
    exchange(run, pairs=1)
    said = verdict(run)
    assert (said.state, said.recomputed) == ("differs", said.reported)
    assert "2 of 200 predictions differ" in said.reason


def test_another_kind_of_machine_may_label_a_few_otherwise_and_no_more(run):
    edit(run / "environment.json", lambda tree: tree.update(processor="Another"))
    exchange(run, pairs=1)
    assert verdict(run).state == "within tolerance"
    exchange(run, pairs=10)
    assert verdict(run).state == "differs"


def test_labels_must_be_those_of_the_data(run):
    def rotate(tree: dict) -> None:
        for key in ("labels", "predicted"):
            tree[key] = tree[key][1:] + tree[key][:1]

    edit(run / "predictions.json", rotate)
    sealed_again(run)
    said = verdict(run)
    assert said.state == "differs"
    assert "labels of other data than these" in said.reason


def test_lost_predictions_are_damage(run):
    (run / "predictions.json").unlink()
    sealed_again(run)
    assert verdict(run).state == "damaged"


def test_an_encoder_that_is_gone_makes_a_run_not_recomputable(run, tmp_path):
    data = Path(json.loads((run / "config.json").read_text())["data"])
    shutil.copytree(data, tmp_path / "data")
    edit(tmp_path / "data" / "manifest.json", lambda tree: tree["encoder"].update(source=str(tmp_path / "gone")))
    said = Recomputation(data=tmp_path / "data").verdict(run)
    assert said.state == "not recomputable"
    assert "the encoder it was prepared for is gone" in said.reason
