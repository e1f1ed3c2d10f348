"""Gradients exchanged while others are computed are the sums that a plain exchange gives; the laws: exchanging.py."""

import json
import sys

import pytest
import torch

from exchanging import LAWS
from oelm.training.determinism import FORMS
from oelm.training.exchange import BUCKET_ELEMENTS, _buckets
from small_runs import REPOSITORY, finished, warm_script

sys.path.insert(0, str(REPOSITORY / "tests" / "fake_cuda"))
from imaginary import built, missing


@pytest.mark.parametrize("laws", LAWS)
def test_processes_that_exchange_while_they_compute(token_folder, laws):
    done = warm_script(str(REPOSITORY / "tests" / "exchanging.py"), token_folder, laws)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == [law.__name__ for law in LAWS[laws][1]]


def test_buckets_hold_every_gradient_once_and_in_order():
    sizes = (10, BUCKET_ELEMENTS + 1, 5, BUCKET_ELEMENTS - 5, 3)
    weights = [torch.empty(size, device="meta") for size in sizes]
    weights.append(torch.empty(1, dtype=torch.float64, device="meta"))
    assert _buckets(weights, [5, 4, 3, 2, 1, 0]) == [[5], [4, 3], [2], [1], [0]]
    assert _buckets(weights, [0, 1, 2, 3, 4]) == [[0], [1], [2, 3], [4]]


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_on_gpus_every_sum_is_made_there_and_nothing_is_read_on_the_way(tmp_path):
    """Traced on a device that does not exist: a number that the host reads would be an error."""
    program = REPOSITORY / "tests" / "fake_cuda" / "exchange_placement.py"
    done = finished([sys.executable, str(program), str(built(tmp_path))])
    assert done.returncode == 0, done.stderr[-2000:]
    for arm, seen in json.loads(done.stdout).items():
        *gradients, numbers = seen["sums"]
        assert numbers == ["cuda:0", "torch.float64", 2], "loss and wish to stop, after all gradients"
        assert {(device, dtype) for device, dtype, _ in gradients} == {("cuda:0", "torch.float32")}, arm
        rows = 0 if arm == "frozen_embedding" else gradients[-1][2]
        assert rows < seen["rows"], "the rows that the update reads, not all"
        assert sum(size for _, _, size in gradients) == seen["moving"] + rows
        assert seen["moments on"] == ["cuda:0"]
        assert seen["read"] == 1
        assert seen["waiting"], "the device may wait for others until a number is read"
        assert set(seen["operations"]) <= {each for operations in FORMS.values() for each in operations}
