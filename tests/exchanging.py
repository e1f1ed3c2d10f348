"""Processes that exchange gradients, forked from one that has torch already, and what each of them must find.

Arguments: token folder, which laws. Prints a line for each law that held; the first that did not is a
traceback and an exit code.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import oelm.training.exchange as exchange
import oelm.training.loop as loop
from bare_loop import parameters
from oelm.config import Run, resolved
from oelm.data.tokens import open_tokens
from oelm.training.assembly import assembled
from oelm.training.device import resolve_machine
from oelm.training.distributed import World, joined
from oelm.training.exchange import GradientExchange
from oelm.training.objective import Objective
from oelm.training.optimizer import optimizer_state
from small_runs import free_port, quiet_execution, small_model, small_run

FIRST, LAST = 8, 12  # of 12 steps: one weight thaws after the ninth, another moves at the tenth alone
ARMS = ("trained", "late_unfreeze", "frozen_half", "every_n")  # thawing, split weights, and in turn
BATCH_SIZE, MICRO_BATCH_SIZE = 6, 1  # over four processes: parts of one and of two
CLIP = 0.3  # less than every gradient's norm


class AfterBackward:
    """The plainest exchange: every gradient in one sum, when all are there."""

    def __init__(self, world: World, parameters: list[Tensor], *_: object) -> None:
        self._parameters = parameters

    def begin(self, step: int) -> None: ...

    def open(self) -> None: ...

    def finish(self) -> None:
        moving = [parameter for parameter in self._parameters if parameter.requires_grad]
        for parameter in moving:
            if parameter.grad is None:  # nothing to do here, but something elsewhere
                parameter.grad = torch.zeros_like(parameter)
        together = torch.cat([parameter.grad.flatten() for parameter in moving])
        dist.all_reduce(together)
        self.gradients = []
        for parameter, summed in zip(moving, together.split([each.numel() for each in moving]), strict=True):
            parameter.grad.copy_(summed.view_as(parameter))
            self.gradients.append(parameter.grad.clone())


class Noted(GradientExchange):
    """What was sent while how many gradients were complete, and what arrived."""

    def begin(self, step: int) -> None:
        super().begin(step)
        self.sent_at: list[int] = []

    def _send(self, bucket: list[int]) -> None:
        super()._send(bucket)
        self.sent_at.append(len(self._complete))

    def finish(self) -> None:
        self.sent_before_the_end, self.all = len(self.sent_at), len(self._complete)
        self.gradients: list[Tensor] = []
        super().finish()
        self.gradients = [p.grad.clone() for p in self._parameters if p.grad is not None]


class Trained:
    """One run in this process, its exchange at hand."""

    def __init__(
        self,
        run: Run,
        folder: Path,
        world: World,
        kind: type = Noted,
        precision: str = "float64",
        *,
        late: bool = False,
    ) -> None:
        execution = quiet_execution(precision=precision, micro_batch_size=MICRO_BATCH_SIZE)
        self.run, self.world, self.kind, self.late = run, world, kind, late
        self.results: list[loop.StepResult] = []
        self.machine, _ = resolve_machine(execution, run, local_rank=world.rank, world_size=world.size)
        data = open_tokens(folder)
        self.objective, self.optimizer, self.schedule = assembled(run, data, machine=self.machine, world=world)

    def steps(self, first: int, last: int, **options: object) -> Trained:
        """As a process that begins after `first` - 1: it has agreed on nothing yet. It acts after `last` alone."""
        made = []
        with _in_place(lambda *given: made.append(self.kind(*given)) or made[-1]):
            taken = loop.optimization_steps(
                self.objective, self.optimizer, self.run,
                schedule=self.schedule, machine=self.machine, world=self.world, start=first - 1,
                late=self.late, acts_after=lambda step: step == last, **options,
            )  # fmt: skip
            for result in taken:
                self.results.append(result)
                if result.step == last or result.stop_requested:
                    break
        (self.exchange,) = made
        return self

    @property
    def weights(self) -> dict[str, Tensor]:
        return parameters(self.objective.model)

    @property
    def moments(self) -> dict[str, Tensor]:
        """Of weights that have been updated: one that was to be, for the first time, may have empty ones."""
        state = optimizer_state(self.optimizer, self.objective.model)
        names = [name for name in parameters(self.objective.model) if state.get(f"{name}:step", 0) > 0]
        return {key: value.clone() for key, value in state.items() if key.rpartition(":")[0] in names}

    @property
    def records(self) -> list[tuple[object, ...]]:
        return [(r.step, r.loss, r.gradient_norm, r.clipped, r.learning_rate) for r in self.results]


class _in_place:
    def __init__(self, made: Callable[..., object]) -> None:
        self._made = made

    def __enter__(self) -> None:
        self._before, loop.GradientExchange = loop.GradientExchange, self._made

    def __exit__(self, *_: object) -> None:
        loop.GradientExchange = self._before


def run_of(arm: str, folder: Path, *, batch_size: int = BATCH_SIZE, clip: float | None = 1.0, **model: object) -> Run:
    run = small_run(arm, data=folder, steps=LAST, batch_size=batch_size, gradient_clip=clip)
    return resolved(run.model_copy(update={"model": small_model(arm, num_layers=2, **model)}))


def same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def close(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, rtol=0, atol=1e-10)


# ---- The laws ------------------------------------------------------------------------------------------------------


def runs_of_every_kind(folder: Path, **options: object) -> list[Run]:
    """The last has empty parts."""
    runs = [run_of(arm, folder, **options) for arm in ARMS]
    return [*runs, run_of("trained", folder, tied=False, **options), run_of("trained", folder, batch_size=3, **options)]


def weights_are_those_of_the_plainest_exchange(folder: Path, world: World) -> None:
    for run in runs_of_every_kind(folder):
        plain = Trained(run, folder, world, AfterBackward).steps(FIRST, LAST)
        close(plain.weights, Trained(run, folder, world).steps(FIRST, LAST).weights)


def all_processes_have_one_model(folder: Path, world: World) -> None:
    """To the last bit: otherwise they would drift apart."""
    for late in (False, True):
        trained = Trained(run_of("late_unfreeze", folder, clip=CLIP), folder, world, precision="float32", late=late)
        mine = torch.cat([weight.flatten() for weight in trained.steps(FIRST, LAST).weights.values()])
        first = mine.clone()
        dist.broadcast(first, src=0)
        assert torch.equal(first, mine), f"rank {world.rank} has other weights than rank 0"


def a_second_run_and_a_resumed_one_add_in_the_same_order(folder: Path, world: World) -> None:
    """In single precision, with buckets that gloo cuts in places of their own: any other order would show."""
    for late in (False, True):
        begun = functools.partial(
            Trained, run_of("late_unfreeze", folder, clip=CLIP), folder, world, precision="float32", late=late
        )
        whole, again = (begun().steps(FIRST, LAST) for _ in range(2))
        assert same(whole.weights, again.weights)
        for stop in (9, 11):  # before and after the thaw
            parts = begun().steps(FIRST, stop).steps(stop + 1, LAST)
            assert same(whole.weights, parts.weights), f"resumed after step {stop}, read late: {late}"
            assert whole.records == parts.records


def buckets_leave_while_others_are_computed(folder: Path, world: World) -> None:
    for arm in ("frozen_half", "late_unfreeze"):
        seen = Trained(run_of(arm, folder), folder, world).steps(FIRST, LAST).exchange  # of the last
        assert len(seen.sent_at) > 3
        assert seen.sent_before_the_end == len(seen.sent_at), "a complete bucket was not sent"
        assert seen.sent_at[0] == 1, "the output layer's gradient is there before all others"
        assert seen.sent_at[2] < seen.all // 2, (seen.sent_at, seen.all)


def two_processes_give_the_bits_of_the_plainest_exchange(folder: Path, world: World) -> None:
    """All but the embedding, whose two parts are added up in another order."""
    for arm in ARMS:
        run = run_of(arm, folder)
        plain, noted = (
            Trained(run, folder, world, kind, precision="float32").steps(FIRST, FIRST).exchange
            for kind in (AfterBackward, Noted)
        )
        unlike = [
            tuple(mine.shape)
            for mine, theirs in zip(noted.gradients, plain.gradients, strict=True)
            if not torch.equal(mine, theirs)
        ]
        assert all(shape == (64, 32) for shape in unlike), unlike


# ---- Numbers that are read one step late, as on GPUs ----------------------------------------------------------------


def numbers_read_late_and_weights_are_those_read_at_once(folder: Path, world: World) -> None:
    """To the last bit where nothing is clipped; a clipping factor is a quotient there and a product here."""
    uneven = {"batch_size": 5}  # of two processes and of four
    runs = [run_of("late_unfreeze", folder, clip=None, **uneven)]
    for run in runs_of_every_kind(folder, clip=None) if world.size > 2 else runs:
        now, late = (Trained(run, folder, world, late=late).steps(FIRST, LAST) for late in (False, True))
        assert now.records == late.records
        assert same(now.weights, late.weights)
        assert same(now.moments, late.moments)
    clipping = run_of("late_unfreeze", folder, clip=CLIP, **uneven)
    now, late = (Trained(clipping, folder, world, late=late).steps(FIRST, LAST) for late in (False, True))
    assert all(result.clipped for result in (*now.results, *late.results))
    close(now.weights, late.weights)


def an_update_that_is_no_number_on_one_process_is_left_out_by_all(folder: Path, world: World) -> None:
    """Weights and moments stay those of the step before; every process says which step it was. Step 10 is the first of
    a weight that thaws, whose gradient is not sent by its hook yet; at step 11 it is."""
    run = run_of("late_unfreeze", folder, clip=CLIP)
    begun = functools.partial(Trained, run, folder, world, precision="float32", late=True)
    before = {step: begun().steps(FIRST, step - 1) for step in (10, 11)}
    for spoil, step in ((_spoiled_weight, 10), (_spoiled_weight, 11), (_spoiled_rows, 10), (_spoiled_loss, 11)):
        spoiled, launched = begun(), []
        here = spoil(step) if world.rank == world.size - 1 else contextlib.nullcontext()
        with here, _counted(launched), pytest.raises(loop.Diverged, match=f"diverged at step {step}: "):
            spoiled.steps(FIRST, LAST)
        assert launched[-1] == step + 1, "the next step was not under way"
        assert spoiled.records == before[step].records
        assert same(before[step].weights, spoiled.weights), (spoil.__name__, step)
        assert same(before[step].moments, spoiled.moments), (spoil.__name__, step)


def a_wish_of_one_process_to_stop_is_granted_by_all_after_the_step_under_way(folder: Path, world: World) -> None:
    run = run_of("late_unfreeze", folder)
    asked = iter([False, world.rank == world.size - 1, False, False, False])
    stopped = Trained(run, folder, world, precision="float32", late=True)
    stopped.steps(FIRST, LAST, stop_requested=lambda: next(asked))
    assert [(r.step, r.stop_requested) for r in stopped.results] == [(8, False), (9, False), (10, True)]
    whole = Trained(run, folder, world, precision="float32", late=True).steps(FIRST, LAST)
    assert same(whole.weights, stopped.steps(11, LAST).weights)


def all_processes_take_the_smallest_of_their_numbers(folder: Path, world: World) -> None:
    assert world.least(7 + (world.rank + 1) % world.size) == 7


def _counted(begun: list[int]) -> contextlib.AbstractContextManager[object]:
    real = loop.accumulate_gradients

    def accumulate(objective: Objective, run: Run, step: int, **options: object) -> Tensor:
        begun.append(step)
        return real(objective, run, step, **options)

    return patch.object(loop, "accumulate_gradients", accumulate)


def _spoiled_weight(at: int) -> contextlib.AbstractContextManager[object]:
    """The gradient of a weight that thaws, as the backward pass makes it."""
    real = loop.accumulate_gradients

    def accumulate(objective: Objective, run: Run, step: int, **options: object) -> Tensor:
        if step != at:
            return real(objective, run, step, **options)
        weight = objective.model.get_parameter("blocks.1.attention.query.weight")
        assert weight.requires_grad
        hook = weight.register_hook(lambda gradient: gradient * float("nan"))
        loss = real(objective, run, step, **options)
        hook.remove()
        return loss

    return patch.object(loop, "accumulate_gradients", accumulate)


def _spoiled_rows(at: int) -> contextlib.AbstractContextManager[object]:
    """The gradient at the rows of the embedding, which arrive last."""
    real, updates = exchange._Rows.send, iter(range(FIRST, LAST + 1))

    def send(rows: exchange._Rows) -> None:
        if next(updates) == at:
            rows._sums[0, 0] = float("inf")
        real(rows)

    return patch.object(exchange._Rows, "send", send)


def _spoiled_loss(at: int) -> contextlib.AbstractContextManager[object]:
    real = loop.accumulate_gradients

    def accumulate(objective: Objective, run: Run, step: int, **options: object) -> Tensor:
        return real(objective, run, step, **options) * (float("inf") if step == at else 1.0)

    return patch.object(loop, "accumulate_gradients", accumulate)


READ_LATE = (
    numbers_read_late_and_weights_are_those_read_at_once,
    an_update_that_is_no_number_on_one_process_is_left_out_by_all,
    a_wish_of_one_process_to_stop_is_granted_by_all_after_the_step_under_way,
)
# Name -> how many processes, and what they must find.
LAWS = {
    "two": (
        2,
        (
            two_processes_give_the_bits_of_the_plainest_exchange,
            *READ_LATE,
            all_processes_take_the_smallest_of_their_numbers,
        ),
    ),
    "four": (
        4,
        (
            weights_are_those_of_the_plainest_exchange,
            all_processes_have_one_model,
            a_second_run_and_a_resumed_one_add_in_the_same_order,
            buckets_leave_while_others_are_computed,
        ),
    ),
    "four, read late": (4, READ_LATE),
}


def child(rank: int, name: str, port: int, folder: Path) -> int:
    size, laws = LAWS[name]
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    exchange.BUCKET_ELEMENTS = 2000
    torch.set_num_threads(1)
    world = World(rank=rank, size=size)
    try:
        with joined(world, device="cpu"):
            for law in laws:
                law(folder, world)
                if world.is_main:
                    print(law.__name__, flush=True)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    where, laws_of = Path(sys.argv[1]), sys.argv[2]
    meeting, children = free_port(), []
    for number in range(LAWS[laws_of][0]):
        forked = os.fork()
        if forked == 0:
            os._exit(child(number, laws_of, meeting, where))
        children.append(forked)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))
