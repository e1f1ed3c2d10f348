"""How many sequences at once: parts are equal, what fits decides, and the result does not depend on it."""

import pytest
import torch
from safetensors.torch import load_file

from oelm.core.config import Execution, resolved
from oelm.core.settings import load_settings
from oelm.machine.errors import UserError
from oelm.run.training.device import micro_batch, micro_batches
from oelm.run.training.distributed import World
from oelm.run.training.loop import accumulate_gradients
from oelm.run.training.run import _as_it_began, planned, train
from small_runs import quiet_execution, small_run


def medium(batch_size: int):
    run = load_settings(preset="medium-512", assignments=[f"training.batch_size={batch_size}"]).run
    return resolved(run)


def test_a_step_has_as_few_parts_as_are_worthwhile():
    for batch, world, size in (120, 1, 60), (64, 1, 64), (130, 1, 44), (120, 4, 30), (1, 1, 1):
        assert micro_batch(medium(batch), kind="cuda", world_size=world) == size
    assert micro_batch(medium(120), kind="cpu", world_size=1) == 8


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


# ---- Runs ----------------------------------------------------------------------------------------------------------


def weights(out) -> dict[str, torch.Tensor]:
    return load_file(out / "checkpoints" / "step-000020" / "model.safetensors")


@pytest.fixture
def rehearsed(monkeypatch) -> None:
    """As on a GPU, the first step is tried."""
    monkeypatch.setattr("oelm.run.training.driver.REHEARSED", {"cpu"})


def short_of_memory(most: int, at_step: int = 1):
    def accumulated(objective, run, step, *, machine, **given):
        if machine.micro_batch_size > most and step >= at_step:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return accumulate_gradients(objective, run, step, machine=machine, **given)

    return accumulated


@pytest.mark.usefixtures("rehearsed")
def test_a_gpu_without_room_for_a_step_halves_the_micro_batch_and_nothing_else(token_folder, tmp_path, monkeypatch):
    run = small_run("frozen_half", data=token_folder)
    execution = quiet_execution(precision="float64", micro_batch_size=4)
    train(run, execution, out=tmp_path / "whole")
    train(run, execution.model_copy(update={"micro_batch_size": 1}), out=tmp_path / "ones")
    monkeypatch.setattr("oelm.run.training.driver.accumulate_gradients", short_of_memory(1))
    monkeypatch.setattr("oelm.run.training.loop.accumulate_gradients", short_of_memory(1))
    outcome = train(run, execution, out=tmp_path / "halved")
    said = outcome.directory.log_file.read_text()
    assert "no room for micro-batches of 4; starting with 2, which gives the same result" in said
    assert "micro-batches of 2; starting with 1" in said
    assert '"micro_batch_size": 1' in outcome.directory.environment_file.read_text()
    for name, value in weights(tmp_path / "whole").items():
        torch.testing.assert_close(weights(tmp_path / "halved")[name], value, rtol=0, atol=1e-10)
        assert torch.equal(weights(tmp_path / "halved")[name], weights(tmp_path / "ones")[name])


@pytest.mark.usefixtures("rehearsed")
@pytest.mark.parametrize(("most", "at_step"), [(0, 1), (1, 3)])
def test_memory_that_has_no_room_for_one_sequence_or_runs_out_later_ends_the_run(
    token_folder, tmp_path, monkeypatch, most, at_step
):
    monkeypatch.setattr("oelm.run.training.driver.accumulate_gradients", short_of_memory(most, at_step))
    monkeypatch.setattr("oelm.run.training.loop.accumulate_gradients", short_of_memory(most, at_step))
    with pytest.raises(UserError, match="memory: the GPU has run out"):
        train(small_run(data=token_folder), quiet_execution(micro_batch_size=4), out=tmp_path / "run")


@pytest.mark.usefixtures("rehearsed")
def test_all_processes_take_the_micro_batch_that_fits_everywhere(token_folder, tmp_path, monkeypatch):
    """Where another process has no room, this one halves too."""
    answers = iter([0, 1])
    monkeypatch.setattr(World, "least", lambda world, number: min(number, next(answers)))
    outcome = train(small_run(data=token_folder), quiet_execution(micro_batch_size=4), out=tmp_path / "run")
    assert '"micro_batch_size": 2' in outcome.directory.environment_file.read_text()


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


def test_a_dry_run_of_what_has_no_room_here_is_refused_as_the_run_would_be(token_folder, tmp_path):
    run = small_run(data=token_folder)
    run = run.model_copy(update={"model": run.model.model_copy(update={"d_model": 2**20, "d_ff": 2**22})})
    with pytest.raises(UserError, match=r"memory: this run needs at least .* GiB in each process"):
        planned(run, quiet_execution(), out=tmp_path / "run")
