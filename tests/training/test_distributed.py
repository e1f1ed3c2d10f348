"""Two processes compute what one does; a weight that thaws later is synchronised; everything is repeatable."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from oelm.training.distributed import World, _buckets
from small_runs import REPOSITORY, torchrun, warm_script

SCRIPT = str(REPOSITORY / "tests" / "train_many.py")
ARMS = [
    "trained", "late_unfreeze", "frozen_half", "every_n", "train_then_freeze", "frozen_hadamard",
    "frozen_orthogonal_repaired", "probe:recall?pairs=2,3,4&length=16&vocabulary=64",
]  # fmt: skip


def tensors(out: Path, name: str = "model") -> dict[str, torch.Tensor]:
    return load_file(out / "checkpoints" / "step-000020" / f"{name}.safetensors")


@pytest.fixture(scope="module")
def two_processes(token_folder, tmp_path_factory) -> Path:
    return trained_by_two(token_folder, tmp_path_factory.mktemp("two"), ARMS)


def trained_by_two(token_folder, out: Path, arms: list[str]) -> Path:
    done = torchrun(SCRIPT, str(token_folder), str(out), "float64", *arms)
    assert done.returncode == 0, done.stderr
    return out


def test_two_processes_equal_one_within_1e_10_after_20_steps(token_folder, two_processes, tmp_path):
    """5 sequences on 2 processes: parts of different size, so a mean of means would show."""
    one = warm_script(SCRIPT, token_folder, tmp_path, "float64", *ARMS)
    assert one.returncode == 0, one.stderr
    for arm in ARMS:
        single, double = tensors(tmp_path / arm), tensors(two_processes / arm)
        for name, value in single.items():
            torch.testing.assert_close(double[name], value, rtol=0, atol=1e-10)


def test_two_runs_of_two_processes_are_bit_equal_and_keep_frozen_weights(token_folder, two_processes, tmp_path):
    arms = ["frozen_half", "every_n"]
    again = trained_by_two(token_folder, tmp_path, arms)
    for arm in arms:
        for file in ("model", "optimizer"):
            first, second = tensors(two_processes / arm, file), tensors(again / arm, file)
            assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(("count", "size"), [(8, 1), (8, 2), (5, 2), (7, 3), (3, 3)])
def test_shares_cover_a_batch_exactly_and_evenly(count, size):
    shares = [World(rank=rank, size=size).share(count) for rank in range(size)]
    assert [member for share in shares for member in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_buckets_hold_every_gradient_once():
    gradients = [torch.zeros(size) for size in (10, 20 * 2**20, 5, 16 * 2**20, 3)]
    buckets = _buckets(gradients)
    assert [id(g) for bucket in buckets for g in bucket] == [id(g) for g in gradients]
