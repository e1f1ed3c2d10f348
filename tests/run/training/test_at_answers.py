"""Scored at its answers alone, a probe trains as any run does: the gradient is that of a masked loss, arms are paired,
runs resume and verify, and the numbers of its result agree with each other."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from oelm.core.probes.examples import training_examples
from oelm.core.probes.probe import probe_of
from oelm.data.folders import open_probe
from oelm.execution.verification.recomputing import Recomputation
from oelm.run.directory import RunDirectory
from oelm.run.sealing import end_of, ending_files
from oelm.run.training.assembly import assembled
from oelm.run.training.device import resolve_machine
from oelm.run.training.distributed import World
from oelm.run.training.run import train
from oelm.storage.files import Damaged
from small_runs import quiet_execution, small_run
from stored_runs import sealed_again

RECALL = "probe:recall?pairs=2,3,4&length=16&vocabulary=64"


def objective_of(data=RECALL, arm="trained", **execution):
    run = small_run(arm, data=data, batch_size=7)
    machine, _ = resolve_machine(quiet_execution(**execution), run, local_rank=0, world_size=1)
    return assembled(run, open_probe(run.data), machine=machine, world=World())[0]


@pytest.mark.parametrize("cuts", [[7], [3, 4]], ids=str)
def test_the_gradient_is_that_of_a_masked_loss_over_all_positions(cuts):
    objective = objective_of(precision="float64")
    gpt, first = objective.model, 0
    for size in cuts:
        objective.loss_of(3, range(first, first + size)).backward()
        first += size
    ours = {name: value.grad.to_dense() for name, value in gpt.named_parameters()}
    gpt.zero_grad()
    examples = training_examples(probe_of(RECALL), seed=0, step=3, members=range(7))
    logits = gpt(torch.from_numpy(examples.tokens_BT)) @ gpt.output_weight.T
    targets = torch.from_numpy(examples.asked_BT).flatten()
    functional.cross_entropy(logits.flatten(0, 1), targets, ignore_index=-1).backward()
    for name, value in gpt.named_parameters():
        torch.testing.assert_close(ours[name], value.grad.to_dense(), rtol=1e-10, atol=1e-12)


def test_the_output_layer_sees_the_answers_alone(monkeypatch):
    objective, seen = objective_of(), []
    entropy = functional.linear  # the loss makes its own products: its rows are counted where it is called

    def counted(hidden, weight, targets, *, scale, compiled):
        seen.append(len(hidden))
        return entropy(hidden, weight).sum() * scale

    monkeypatch.setattr("oelm.run.training.at_answers.summed_cross_entropy", counted)
    objective.loss_of(1, range(6))
    assert seen == [2 * (2 + 3 + 4)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe") / "run"
    run = small_run("frozen_orthogonal_shift", data=RECALL, steps=8, validate_every=4)
    train(run, quiet_execution(checkpoint_every=4), out=folder)
    return folder


def test_a_run_goes_on_where_it_was_cut_off(finished, tmp_path):
    cut = tmp_path / "run"
    shutil.copytree(finished, cut)
    directory = RunDirectory(cut)
    for file in ending_files(directory):
        file.unlink(missing_ok=True)
    shutil.rmtree(directory.checkpoints / "step-000008")
    directory.write_status("running", step=4)
    train(small_run("frozen_orthogonal_shift", data=RECALL, steps=8, validate_every=4), quiet_execution(), out=cut)
    ours, theirs = (load_file(each / "checkpoints" / "step-000008" / "model.safetensors") for each in (cut, finished))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    results = [json.loads((each / "experiment_result.json").read_text()) for each in (cut, finished)]
    assert results[0]["resumes"] == 1
    assert results[0]["accuracy_by_difficulty"] == results[1]["accuracy_by_difficulty"]


def test_a_result_agrees_with_itself(finished):
    result = end_of(RunDirectory(finished)).result
    each = result["accuracy_by_difficulty"]
    assert list(each) == list(result["chance_in_context"]) == ["2", "3", "4"]
    assert result["accuracy"] == pytest.approx(sum(each.values()) / 3)
    assert result["chance_in_context"]["4"] == 1 / 4
    assert result["chance_blind"] == 1 / 64


def test_a_run_is_recomputed_to_the_last_bit(finished):
    assert Recomputation().verdict(finished).state == "bit-equal"


def test_an_accuracy_that_is_not_the_mean_is_damaged_whatever_the_seal_says(finished, tmp_path):
    edited = tmp_path / "run"
    shutil.copytree(finished, edited)
    file = edited / "experiment_result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"accuracy": 0.99}))
    with pytest.raises(Damaged, match="the mean over the difficulties is"):
        end_of(RunDirectory(sealed_again(edited)))
