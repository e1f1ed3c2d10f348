"""The best model is written beside training: from a copy, one at a time, and what goes wrong is said."""

import threading

import pytest
import torch

from bare_loop import moved, parameters
from oelm.core.model.initialization import build
from oelm.data.tokens import open_tokens
from oelm.run.directory import RunDirectory
from oelm.run.training.best_model import BestModel, best_saver
from oelm.run.training.checkpoint import read_tensors
from small_runs import small_run


def test_what_is_written_are_the_weights_of_that_moment(token_folder, tmp_path):
    run = small_run("frozen_half")
    gpt = build(run.model, run.seeds)
    then = {name: value.clone() for name, value in gpt.state_dict().items()}
    save = best_saver(RunDirectory(tmp_path), gpt, run, open_tokens(token_folder), step=3, val_loss=1.5)
    before = parameters(gpt)
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.add_(1)
    assert moved(before, parameters(gpt)) == before.keys()
    best = BestModel()
    best.begin(save)
    best.wait()
    stored = read_tensors(tmp_path / "best" / "model.safetensors")
    assert stored.keys() == then.keys()
    assert all(torch.equal(stored[name], then[name]) for name in then)


def test_training_goes_on_meanwhile_and_the_next_one_waits():
    best, may_end, order = BestModel(), threading.Event(), []

    def slow() -> None:
        may_end.wait(30)
        order.append("first")

    best.begin(slow)
    order.append("training")
    threading.Timer(0.05, may_end.set).start()
    best.begin(lambda: order.append("second"))
    best.wait()
    assert order == ["training", "first", "second"]


def fail() -> None:
    raise OSError("no room")


def test_an_error_is_raised_where_it_is_waited_for_and_once():
    best = BestModel()
    best.begin(fail)
    with pytest.raises(OSError, match="no room"):
        best.wait()
    best.wait()
    best.begin(fail)
    with pytest.raises(OSError, match="no room"):
        best.begin(lambda: None)


def test_at_the_end_of_a_run_an_error_is_raised_or_if_there_is_another_said():
    best, said = BestModel(), []
    with pytest.raises(OSError, match="no room"), best.over_at_the_end(said.append):
        best.begin(fail)
    assert said == []
    best.begin(fail)
    with pytest.raises(ValueError, match="something else"), best.over_at_the_end(said.append):
        raise ValueError("something else")
    assert said == ["the best model could not be written: no room"]
