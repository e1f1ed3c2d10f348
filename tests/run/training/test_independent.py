"""Whole runs against a second computation: dropout, epochs, micro-batches, records between checkpoints, a resume.

Parts of a run that are right by themselves can hide each other's faults; a second computation of everything does not.
"""

import json
import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from oelm.core.model.initialization import build
from oelm.core.probes.examples import held_out_examples, training_examples
from oelm.core.probes.probe import probe_of
from oelm.core.seeding import seed_of
from oelm.run.training import driver
from oelm.run.training.run import train
from oelm.storage.metric_records import read_records
from small_runs import quiet_execution, small_run

STEPS, BATCH, MICRO, LENGTH = 14, 4, 2, 16
# So that records begin and end between checkpoints, and dropout goes on after validations.
LOG, SAVE, VALIDATE = 3, 4, 5
RECALL = "probe:recall?pairs=2,3,4&length=16&vocabulary=64"
RATE, WARMUP, LOWEST, CLIP, DECAY = 1e-2, 2, 0.1, 1.0, 0.1


@pytest.fixture(scope="module")
def few_tokens(tmp_path_factory):
    """19 windows of training: an epoch ends within the fifth update, and again within the tenth."""
    folder = tmp_path_factory.mktemp("few")
    generator = np.random.default_rng(1)
    for name, length in (("train", 19 * LENGTH + 30), ("val", 2 * 200)):
        (np.cumsum(generator.integers(0, 4, size=length)) % 64).astype("<u2").tofile(folder / f"{name}.bin")
    return folder


def with_dropout(**settings):
    run = small_run(
        steps=STEPS, batch_size=BATCH, learning_rate=RATE, warmup_steps=WARMUP, gradient_clip=CLIP, weight_decay=DECAY,
        final_learning_rate_fraction=LOWEST, validate_every=VALIDATE, validation_sequences=6,
        final_validation_sequences=9, **settings,
    )  # fmt: skip
    return run.model_copy(update={"model": run.model.model_copy(update={"dropout": 0.2})})


def trained(run, out, *, killed_in=None):
    """Its records. `killed_in`: it ends in this step without a word, and the same command goes on."""
    settings = {"precision": "float64", "micro_batch_size": MICRO, "log_every": LOG, "checkpoint_every": SAVE}
    execution = quiet_execution(**settings)
    if killed_in is not None:
        note = driver.Driver._note
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(driver.Driver, "_note", lambda self, result: _note_until(killed_in, note, self, result))
            with pytest.raises(InterruptedError):
                train(run, execution, out=out)
    directory = train(run, execution, out=out).directory
    result = json.loads(directory.result_file.read_text())
    return read_records(directory.metrics_file), result


def _note_until(step, note, self, result):
    if result.step == step:
        raise InterruptedError
    note(self, result)


class Independently:
    """The same run from the definition of its parts: whole logits, torch's own AdamW and clipping."""

    def __init__(self, run, batch_of, held_out):
        self.run, self.batch_of, self.held_out = run, batch_of, held_out
        self.model = build(run.model, run.seeds).double()
        weights = [weight for name, weight in self.model.named_parameters() if not name.endswith("bias")]
        decaying = [weight for weight in weights if weight.dim() == 2]
        others = [each for each in self.model.parameters() if all(each is not weight for weight in decaying)]
        groups = [{"params": decaying, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(
            groups, betas=(run.training.beta1, run.training.beta2), eps=run.training.epsilon
        )

    def losses(self, tokens, targets):
        logits = self.model(tokens) @ self.model.output_weight.T
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="sum")

    def step(self, number):
        tokens, targets = self.batch_of(number)
        answers, total = (targets >= 0).sum(), 0.0
        for first in range(0, BATCH, MICRO):
            torch.manual_seed(seed_of(self.run.seeds.data, "dropout", number, first))
            loss = self.losses(tokens[first : first + MICRO], targets[first : first + MICRO]) / answers
            loss.backward()
            total += loss.item()
        norm = math.sqrt(sum(weight.grad.square().sum().item() for weight in self.model.parameters()))
        for weight in self.model.parameters():
            weight.grad *= min(1.0, CLIP / norm)
        share = (number - WARMUP) / (STEPS - WARMUP)
        cosine = LOWEST + (1 - LOWEST) * (1 + math.cos(math.pi * share)) / 2
        for group in self.optimizer.param_groups:
            group["lr"] = RATE * (number / WARMUP if number <= WARMUP else cosine)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total

    @torch.no_grad()
    def validation(self, count):
        self.model.eval()
        tokens, targets = self.held_out(count)
        loss = self.losses(tokens, targets) / (targets >= 0).sum()
        self.model.train()
        return loss.item()

    def check(self, records, result):
        """Every record, and what is reported."""
        assert [each["step"] for each in records if "train_loss" in each] == [3, 6, 9, 12, 14]
        assert [each["step"] for each in records if "val_loss" in each] == [5, 10, 14]
        expected, since = {}, []
        for step in range(1, STEPS + 1):
            since.append(self.step(step))
            if step % LOG == 0 or step == STEPS:
                expected[step, "train_loss"], since = sum(since) / len(since), []
            if step % VALIDATE == 0 or step == STEPS:
                expected[step, "val_loss"] = self.validation(6)
        for (step, key), loss in expected.items():
            (found,) = [each[key] for each in records if each["step"] == step and key in each]
            assert found == pytest.approx(loss, rel=1e-9), (step, key)
        assert result["val_loss"] == pytest.approx(self.validation(9), rel=1e-9)


def test_a_run_on_text_that_was_killed_is_what_another_computation_makes_of_it(few_tokens, tmp_path):
    run = with_dropout(data=few_tokens)
    train_tokens, held_out = (np.fromfile(few_tokens / f"{name}.bin", dtype="<u2") for name in ("train", "val"))
    held_out = held_out[200:]  # tuning has the first half

    def windows(tokens, starts):
        rows = torch.from_numpy(np.stack([tokens[start : start + LENGTH + 1] for start in starts]).astype(np.int64))
        return rows[:, :-1], rows[:, 1:]

    def batch_of(step):
        starts = []
        for index in range((step - 1) * BATCH, step * BATCH):
            epoch, place = divmod(index, 19)
            order = np.argsort(np.random.Philox(key=seed_of(0, "order", epoch)).random_raw(19), kind="stable")
            shift = seed_of(0, "shift", epoch) % (len(train_tokens) - 19 * LENGTH)
            starts.append(shift + order[place] * LENGTH)
        return windows(train_tokens, starts)

    def validated(count):
        return windows(held_out, [number * (199 // LENGTH) // count * LENGTH for number in range(count)])

    records, result = trained(run, tmp_path / "run", killed_in=11)
    Independently(run, batch_of, validated).check(records, result)


def test_a_run_on_a_probe_is_what_another_computation_makes_of_it(tmp_path):
    run = with_dropout(data=RECALL)
    probe, split = probe_of(RECALL), run.training.validation_split

    def as_tensors(examples):
        return torch.from_numpy(examples.tokens_BT), torch.from_numpy(examples.asked_BT)

    def batch_of(step):
        return as_tensors(training_examples(probe, seed=0, step=step, members=range(BATCH)))

    def validated(count):
        return as_tensors(held_out_examples(probe, split, range(count), seed=0))

    records, result = trained(run, tmp_path / "run")
    Independently(run, batch_of, validated).check(records, result)
