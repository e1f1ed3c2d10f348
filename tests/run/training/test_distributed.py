"""Two processes compute what one does; a weight that thaws later is synchronised."""

import threading
import time

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

import oelm.run.training.distributed as distributed
from oelm.run.training.distributed import OtherProcessGone, World, joined
from small_runs import REPOSITORY, torchrun, warm_script

SCRIPT = str(REPOSITORY / "tests" / "train_many.py")
ARMS = [
    "late_unfreeze", "frozen_half", "every_n", "frozen_orthogonal_repaired",
    "probe:recall?pairs=2,3,4&length=16&vocabulary=64",
]  # fmt: skip


def test_two_processes_equal_one_within_1e_10_after_20_steps(token_folder, tmp_path):
    """5 sequences on 2 processes: parts of different size, so a mean of means would show."""
    two = torchrun(SCRIPT, str(token_folder), str(tmp_path / "two"), "float64", *ARMS)
    assert two.returncode == 0, two.stderr
    one = warm_script(SCRIPT, token_folder, tmp_path / "one", "float64", *ARMS)
    assert one.returncode == 0, one.stderr
    for arm in ARMS:
        single, double = (
            load_file(tmp_path / number / arm / "checkpoints" / "step-000020" / "model.safetensors")
            for number in ("one", "two")
        )
        for name, value in single.items():
            torch.testing.assert_close(double[name], value, rtol=0, atol=1e-10)


def test_gradients_are_sent_once_each_in_order_and_small_ones_together(monkeypatch):
    monkeypatch.setattr(distributed, "BUCKET_ELEMENTS", 10)
    gradients = [torch.empty(size) for size in (4, 6, 5, 11, 3)]
    assert [[each.numel() for each in bucket] for bucket in distributed._buckets(gradients)] == [[4, 6], [5], [11], [3]]


@pytest.mark.parametrize(("count", "size"), [(8, 1), (8, 2), (5, 2), (7, 3), (3, 3)])
def test_shares_cover_a_batch_exactly_and_evenly(count, size):
    shares = [World(rank=rank, size=size).share(count) for rank in range(size)]
    assert [member for share in shares for member in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


# ---- NCCL, which is not at hand: what is asked of torch is seen ----------------------------------------------------


@pytest.fixture
def asked(monkeypatch) -> list[object]:
    calls: list[object] = []

    def grouped(backend, *, timeout, device_id=None):
        calls.append((backend, timeout.total_seconds(), device_id))
        return backend

    monkeypatch.setattr(dist, "init_process_group", lambda backend, timeout: calls.append(backend))
    monkeypatch.setattr(dist, "new_group", grouped)
    monkeypatch.setattr(distributed, "RollCall", lambda **given: given)
    monkeypatch.setattr(dist, "destroy_process_group", lambda: calls.append("destroyed"))
    monkeypatch.setattr(dist.distributed_c10d, "_abort_process_group", lambda: calls.append("aborted"))
    return calls


def test_a_group_has_its_limit_knows_its_device_and_ends_in_order(asked):
    with joined(World(rank=1, size=2), device="cuda:1", limit_seconds=30) as world:
        assert (world.numbers, world.gradients) == ("gloo", "nccl")
        assert world.roll_call == {"rank": 1, "size": 2, "limit_seconds": 30}
    assert asked == ["gloo", ("gloo", 30, None), ("nccl", 30, torch.device("cuda:1")), "destroyed"]
    del asked[:]
    with joined(World(rank=0, size=2), device="cpu") as world:
        assert world.numbers == world.gradients == "gloo"
    assert asked == ["gloo", ("gloo", distributed.LIMIT_SECONDS, None), "destroyed"]


@pytest.mark.parametrize(("device", "end"), [("cuda:0", "aborted"), ("cpu", "destroyed")])
def test_after_an_error_nccl_is_aborted(asked, device, end):
    with pytest.raises(KeyError), joined(World(rank=0, size=2), device=device):
        raise KeyError("the error")
    assert asked[-1] == end


def test_an_abort_that_fails_leaves_the_first_error_to_be_shown(asked, monkeypatch):
    def failing():
        raise RuntimeError("NCCL error")

    monkeypatch.setattr(dist.distributed_c10d, "_abort_process_group", failing)
    with pytest.raises(KeyError), joined(World(rank=0, size=2), device="cuda:0"):
        raise KeyError("the error")


def test_an_abort_that_hangs_is_left_and_the_process_with_it(asked, monkeypatch):
    free, exits = threading.Event(), []
    monkeypatch.setattr(dist.distributed_c10d, "_abort_process_group", free.wait)
    monkeypatch.setattr(distributed, "ABORT_SECONDS", 0.05)
    monkeypatch.setattr(distributed.os, "_exit", exits.append)
    began = time.monotonic()
    with pytest.raises(KeyError), joined(World(rank=0, size=2), device="cuda:0"):
        raise KeyError("the error")
    while not exits and time.monotonic() - began < 30:
        time.sleep(0.01)
    free.set()
    assert exits == [1]


def test_what_happened_to_this_process_is_not_blamed_on_another():
    for message, raised in (
        ("CUDA out of memory. Tried to allocate 20.00 MiB", RuntimeError),
        ("CUDA error: an illegal memory access was encountered", RuntimeError),
        ("NCCL error: remote process exited or there was a network error", OtherProcessGone),
        ("[gloo/transport/tcp/pair.cc:538] Connection closed by peer", OtherProcessGone),
    ):
        with pytest.raises(raised) as caught, World(rank=1, size=2).together():
            raise RuntimeError(message)
        assert caught.type is raised


def test_a_save_is_waited_for_by_its_size(monkeypatch):
    waited = []
    monkeypatch.setattr(dist, "monitored_barrier", lambda group, *, timeout: waited.append(timeout.total_seconds()))
    world = World(rank=1, size=2, limit_seconds=5)
    world.barrier()
    world.barrier(saved_bytes=2 * distributed.SLOWEST_DISK)
    assert waited == [5, 7]
