"""The loop: arithmetic that yields after every update. No logging, no evaluation, no files.

On a GPU nothing inside a step waits for the device: training/late.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from oelm.config import ResolvedRun
from oelm.errors import UserError
from oelm.model.freezing import Schedule
from oelm.seeding import seed_of
from oelm.training.device import Machine, graphs_compiled
from oelm.training.distributed import World
from oelm.training.exchange import GradientExchange
from oelm.training.late import GuardedUpdates, LaunchedStep, Moment, StepNumbers
from oelm.training.loss import backward
from oelm.training.micro_batch import micro_batches
from oelm.training.objective import Objective
from oelm.training.optimizer import clip_gradients, learning_rate_at, set_learning_rate


class Diverged(UserError):
    """The loss, the gradient or a weight is no longer a number."""

    exit_code = 3


def diverged(step: int, what: str, learning_rate: float) -> Diverged:
    return Diverged(
        f"diverged at step {step}: {what}, learning rate {learning_rate:.3g}; "
        "earlier checkpoints are kept; try a lower --set training.learning_rate with another --out"
    )


@dataclass(frozen=True)
class StepResult:
    step: int
    loss: float
    gradient_norm: float
    clipped: bool
    learning_rate: float
    seconds: float
    stop_requested: bool
    graphs: int  # that this process had compiled when the step was launched, this one's among them


def every_step(step: int) -> bool:
    return True


def optimization_steps(
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    run: ResolvedRun,
    *,
    schedule: Schedule,
    machine: Machine,
    world: World,
    start: int = 0,
    stop_requested: Callable[[], bool] = lambda: False,
    acts_after: Callable[[int], bool] = every_step,
    late: bool | None = None,
) -> Iterator[StepResult]:
    """Yield after every optimizer step from start + 1 on. All processes stop at the same step.

    On a GPU (or if `late` says so) a step is yielded while the next one is under way, except where the caller
    `acts_after` it: then the model is as this step left it.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    exchange = GradientExchange(world, parameters, objective, machine)
    loop = _Loop(objective, optimizer, parameters, run, schedule, machine, world, exchange, stop_requested)
    late = machine.kind == "cuda" if late is None else late
    return loop.late_steps(start, acts_after) if late else loop.steps(start)


@dataclass(frozen=True)
class _Loop:
    objective: Objective
    optimizer: torch.optim.Optimizer
    parameters: list[Tensor]
    run: ResolvedRun
    schedule: Schedule
    machine: Machine
    world: World
    exchange: GradientExchange
    stop_requested: Callable[[], bool]

    def steps(self, start: int) -> Iterator[StepResult]:
        """Each is over, and its numbers are known, before the next begins."""
        training, parameters = self.run.training, self.parameters
        for step in range(start + 1, training.steps + 1):
            self.machine.synchronize()
            began = time.perf_counter()
            loss = self._gradients(step)
            shared = torch.tensor([loss.item(), float(self.stop_requested())], dtype=torch.float64)
            total_loss, stop = self.world.sum(shared).tolist()
            learning_rate = learning_rate_at(step, training)
            norm = clip_gradients(parameters, training.gradient_clip)
            _refuse_divergence(step, total_loss, norm, learning_rate)
            set_learning_rate(self.optimizer, learning_rate)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.machine.synchronize()
            numbers = StepNumbers(total_loss, stop, norm, time.perf_counter() - began)
            yield self._result(step, learning_rate, numbers, stop=stop > 0, graphs=graphs_compiled())

    def late_steps(self, start: int, acts_after: Callable[[int], bool]) -> Iterator[StepResult]:
        """Each is under way before the numbers of the one before are read."""
        training, parameters, device = self.run.training, self.parameters, torch.device(self.machine.device)
        updates = GuardedUpdates(self.optimizer, parameters, training.gradient_clip)
        before: LaunchedStep | None = None
        for step in range(start + 1, training.steps + 1):
            began = Moment(device) if before is None else before.ended
            loss = self._gradients(step).double()
            wish = torch.full_like(loss, float(self.stop_requested()))
            total_loss, stop = self.world.sum_in_place(torch.stack([loss, wish])).unbind()
            learning_rate = learning_rate_at(step, training)
            norm = updates.take(total_loss, learning_rate)
            numbers = torch.stack([total_loss, stop, norm.double()]).to("cpu", non_blocking=True)
            launched = LaunchedStep(step, learning_rate, began, Moment(device), numbers, graphs_compiled())
            wanted = False
            if before is not None:
                late = before.read()
                wanted = late.stop > 0  # by all processes; the step that is under way is then the last
                yield self._late_result(before, late, stop=False)
            if wanted or acts_after(step) or step == training.steps:
                read = launched.read()
                self.world.attendance.settled()
                yield self._late_result(launched, read, stop=wanted or read.stop > 0)
                before = None
            else:
                before = launched

    def _gradients(self, step: int) -> Tensor:
        """Those of all processes, added up; returns this process's part of the loss."""
        self.schedule.apply(self.objective.model, step)
        self.exchange.begin(step)
        loss = accumulate_gradients(
            self.objective, self.run, step, machine=self.machine, world=self.world, before_last=self.exchange.open
        )
        self.exchange.finish()
        return loss

    def _late_result(self, launched: LaunchedStep, numbers: StepNumbers, *, stop: bool) -> StepResult:
        _refuse_divergence(launched.step, numbers.loss, numbers.gradient_norm, launched.learning_rate)
        return self._result(launched.step, launched.learning_rate, numbers, stop=stop, graphs=launched.graphs)

    def _result(self, step: int, learning_rate: float, numbers: StepNumbers, *, stop: bool, graphs: int) -> StepResult:
        limit = self.run.training.gradient_clip
        return StepResult(
            step=step,
            loss=numbers.loss,
            gradient_norm=numbers.gradient_norm,
            clipped=limit is not None and numbers.gradient_norm > limit,
            learning_rate=learning_rate,
            seconds=numbers.seconds,
            stop_requested=stop,
            graphs=graphs,
        )


def _refuse_divergence(step: int, loss: float, norm: float, learning_rate: float) -> None:
    if not (math.isfinite(loss) and math.isfinite(norm)):
        raise diverged(step, f"loss {loss}, gradient norm {norm}", learning_rate)


def accumulate_gradients(
    objective: Objective,
    run: ResolvedRun,
    step: int,
    *,
    machine: Machine,
    world: World,
    before_last: Callable[[], None] = lambda: None,
) -> Tensor:
    """Gradients of this process's part of the global mean loss, over its micro-batches; returns that part.

    `before_last` is called before the backward pass that completes the gradients.
    """
    mine = world.share(run.training.batch_size)
    loss = torch.zeros((), dtype=machine.dtype, device=machine.device)
    for members in micro_batches(mine, machine.micro_batch_size, machine.kind):
        if objective.dropout:
            torch.manual_seed(seed_of(run.seeds.data, "dropout", step, members.start))
        with machine.autocast():
            part = objective.loss_of(step, members)
        if members.stop == mine.stop:
            before_last()
        backward(part)
        loss += part.detach()
        world.attendance.sign()
    return loss
