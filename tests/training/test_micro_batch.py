"""How many sequences at once: what is free decides, parts are equal, and the result does not depend on it."""

import re

import pytest
import torch
from safetensors.torch import load_file

from oelm.config import Execution, resolved
from oelm.errors import UserError
from oelm.settings import load_settings
from oelm.training.device import Machine, resolve_machine
from oelm.training.distributed import World
from oelm.training.loop import accumulate_gradients
from oelm.training.memory import memory_line, peak_bytes
from oelm.training.micro_batch import ROOM, micro_batch, micro_batches, peak
from oelm.training.run import _as_it_began, planned, train
from small_runs import quiet_execution, small_run

GPU = {"device": "cuda:0", "precision": "bfloat16", "compiled": False, "world_size": 1}


def medium(batch_size: int):
    run = load_settings(preset="medium-512", assignments=[f"training.batch_size={batch_size}"]).run
    return resolved(run)


@pytest.fixture
def free(monkeypatch):
    def set_to(count: float) -> None:
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(count), int(count)))

    return set_to


@pytest.mark.parametrize(("batch", "world", "size"), [(120, 1, 60), (64, 1, 64), (130, 1, 44), (120, 4, 30), (1, 1, 1)])
def test_parts_of_a_step_are_equal_up_to_one_and_as_few_as_are_worthwhile(free, batch, world, size):
    free(2**40)
    examples, _ = micro_batch(medium(batch), **GPU | {"world_size": world})
    assert examples == size
    share = -(-batch // world)
    parts = [len(part) for part in micro_batches(range(share), examples, "cuda")]
    assert max(parts) - min(parts) <= 1  # 43, 43, 44: never 64, 64, 2


def test_micro_batches_are_a_partition_and_equal_up_to_one_on_a_gpu():
    for count in range(1, 40):
        for size in range(1, count + 1):
            mine = range(100, 100 + count)
            for kind in ("cuda", "cpu"):
                found = micro_batches(mine, size, kind)
                assert [member for part in found for member in part] == list(mine)
                assert len(found) == -(-count // size)
                assert max(map(len, found)) <= size
            sizes = [len(part) for part in micro_batches(mine, size, "cuda")]
            assert max(sizes) - min(sizes) <= 1
            assert all(len(part) == size for part in micro_batches(mine, size, "cpu")[:-1])
    assert micro_batches(range(5, 5), 3, "cuda") == micro_batches(range(5, 5), 3, "cpu") == []
    assert [len(part) for part in micro_batches(range(10), 4, "cuda")] == [3, 3, 4]


def test_the_number_of_parts_that_is_said_is_the_number_made(monkeypatch, free):
    """Of 10 in at most 2 five are made, although six are tried after five were too large."""
    free(2**30)
    for largest in range(1, 11):
        monkeypatch.setattr("oelm.training.micro_batch.peak", lambda run, *, examples, **_: {
            "all": 2**31 if examples > largest else 1  # noqa: B023
        })  # fmt: skip
        examples, reason = micro_batch(medium(10), **GPU)
        made = len(micro_batches(range(10), examples, "cuda"))
        assert f": {made} of them in a step," in reason or (made == 1 and ": the whole step," in reason)


def test_what_is_free_decides_and_is_said(free):
    run = medium(120)
    for gibibytes in (24, 8, 4, 3):
        free(gibibytes * 2**30)
        examples, reason = micro_batch(run, **GPU)
        needed = sum(peak(run, examples=examples, world_size=1, precision="bfloat16", compiled=False).values())
        assert needed <= ROOM * gibibytes * 2**30
        parts = -(-120 // examples)
        fewer = -(-120 // (parts - 1)) if parts > 2 else None
        if fewer is not None:
            more = sum(peak(run, examples=fewer, world_size=1, precision="bfloat16", compiled=False).values())
            assert more > ROOM * gibibytes * 2**30
        assert re.fullmatch(
            rf"micro-batch {examples}: {parts} of them in a step, about .* that are free on the GPU", reason
        )


def test_a_card_that_holds_not_even_one_is_tried_with_one(free):
    free(2**20)
    assert micro_batch(medium(120), **GPU)[0] == 1


def test_a_processor_and_a_card_that_says_nothing_have_as_many_as_are_worthwhile():
    assert micro_batch(medium(120), **GPU | {"device": "cpu"}) == (8, None)
    examples, reason = micro_batch(medium(120), **GPU)  # no GPU here: nobody to ask
    assert (examples, reason) == (60, "micro-batch 60: the memory of the GPU was not looked at")


def test_precision_size_and_compiling_change_the_estimate():
    run = medium(120)
    given = {"examples": 8, "world_size": 1, "precision": "bfloat16", "compiled": False}
    whole = sum(peak(run, **given).values())
    assert sum(peak(run, **given | {"examples": 16}).values()) > whole
    assert sum(peak(run, **given | {"precision": "float32"}).values()) > whole
    assert peak(run, **given | {"compiled": True})["activations"] < peak(run, **given)["activations"]


# ---- Runs ----------------------------------------------------------------------------------------------------------


def weights(out) -> dict[str, torch.Tensor]:
    return load_file(out / "checkpoints" / "step-000020" / "model.safetensors")


def test_memory_that_runs_out_at_the_start_halves_the_micro_batch_and_nothing_else(token_folder, tmp_path, monkeypatch):
    run = small_run("frozen_half", data=token_folder)
    execution = quiet_execution(precision="float64", micro_batch_size=4)
    train(run, execution, out=tmp_path / "whole")

    def short_of_memory(objective, run, step, *, machine, **given):
        if machine.micro_batch_size > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return accumulate_gradients(objective, run, step, machine=machine, **given)

    monkeypatch.setattr("oelm.training.loop.accumulate_gradients", short_of_memory)
    outcome = train(run, execution, out=tmp_path / "halved")
    said = outcome.directory.log_file.read_text()
    assert "ran out of memory with micro-batches of 4; starting again with 2, which gives the same result" in said
    assert "micro-batches of 2; starting again with 1" in said
    assert '"micro_batch_size": 1' in outcome.directory.environment_file.read_text()
    for name, value in weights(tmp_path / "whole").items():
        torch.testing.assert_close(weights(tmp_path / "halved")[name], value, rtol=0, atol=1e-10)


def test_memory_that_runs_out_later_ends_the_run(token_folder, tmp_path, monkeypatch):
    def short_of_memory(objective, run, step, *, machine, **given):
        if step == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return accumulate_gradients(objective, run, step, machine=machine, **given)

    monkeypatch.setattr("oelm.training.loop.accumulate_gradients", short_of_memory)
    with pytest.raises(UserError, match="memory: the GPU has run out"):
        train(small_run(data=token_folder), quiet_execution(micro_batch_size=4), out=tmp_path / "run")


def test_all_processes_of_a_run_compute_as_much_at_once_as_the_one_with_the_least_memory(
    token_folder, tmp_path, monkeypatch
):
    """Else a resumed run, which finds one size stored, would give other bits on some of them."""
    monkeypatch.setattr(World, "least", lambda world, number: number - 1)
    outcome = train(small_run(data=token_folder), quiet_execution(micro_batch_size=4), out=tmp_path / "run")
    assert '"micro_batch_size": 3' in outcome.directory.environment_file.read_text()
    assert "micro-batch 3: another GPU of this run has less memory free" in outcome.directory.log_file.read_text()


def test_a_resumed_run_on_a_gpu_keeps_its_micro_batch(tmp_path):
    file = tmp_path / "environment.json"
    assert _as_it_began(Execution(), tmp_path).micro_batch_size is None
    file.write_text('{"device": "cuda:0", "micro_batch_size": 30}')
    assert _as_it_began(Execution(), tmp_path).micro_batch_size == 30
    assert _as_it_began(Execution(micro_batch_size=8), tmp_path).micro_batch_size == 8
    file.write_text('{"device": "cpu", "micro_batch_size": 30}')
    assert _as_it_began(Execution(), tmp_path).micro_batch_size is None
    file.write_text("{")
    assert _as_it_began(Execution(), tmp_path).micro_batch_size is None


def test_a_dry_run_shows_the_memory_and_writes_nothing(token_folder, tmp_path):
    lines = planned(small_run(data=token_folder), quiet_execution(), out=tmp_path / "run")
    assert lines[0].startswith(f"trained in {tmp_path / 'run'}: device cpu")
    assert any(line.startswith("memory: at least ") for line in lines)
    assert lines[-1] == "nothing was started"
    assert not (tmp_path / "run").exists()


def test_the_line_for_a_gpu_is_the_estimate(free):
    free(24 * 2**30)
    run = medium(120)
    machine = Machine("cuda:0", "bfloat16", False, 1, 30)
    parts = peak_bytes(run, machine)
    assert (
        memory_line(run, machine)
        == f"memory: about {sum(parts.values()) / 2**30:.1f} GiB ("
        + ", ".join(
            f"{name} {count / 2**30:.1f} GiB" if count >= 2**30 else f"{name} {count / 2**20:.1f} MiB"
            for name, count in parts.items()
            if count
        )
        + ")"
    )
    assert parts["exchange"] == 0  # of one process; nothing is said of what is not there


def test_the_reason_is_said_by_the_machine_that_is_resolved(monkeypatch, free):
    free(24 * 2**30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    execution = Execution(device="cuda", precision="bfloat16", compile="off")
    machine, reasons = resolve_machine(execution, medium(120), local_rank=0, world_size=1)
    assert reasons[-1].startswith(f"micro-batch {machine.micro_batch_size}: ")
    assert machine.micro_batch_size in (60, 40, 30)
