"""The loop: arithmetic that yields after every update. No logging, no evaluation, no files."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from oelm.core.config import ResolvedRun
from oelm.core.model.freezing import Schedule
from oelm.core.seeding import seed_of
from oelm.machine.errors import UserError
from oelm.run.training.device import Machine, micro_batches
from oelm.run.training.distributed import World
from oelm.run.training.loss import backward
from oelm.run.training.objective import Objective
from oelm.run.training.optimizer import clip_gradients, learning_rate_at, set_learning_rate


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
) -> Iterator[StepResult]:
    """Yield after every optimizer step from start + 1 on. All processes stop at the same step."""
    training = run.training
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for step in range(start + 1, training.steps + 1):
        machine.synchronize()
        began = time.perf_counter()
        schedule.apply(objective.model, step)
        mine = accumulate_gradients(objective, run, step, machine=machine, world=world).item()
        loss, stop = world.sum(torch.tensor([mine, float(stop_requested())], dtype=torch.float64)).tolist()
        world.add_up([p.grad for p in parameters if p.grad is not None])
        learning_rate = learning_rate_at(step, training)
        norm = clip_gradients(parameters, training.gradient_clip)
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise diverged(step, f"loss {loss}, gradient norm {norm}", learning_rate)
        set_learning_rate(optimizer, learning_rate)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        machine.synchronize()
        yield StepResult(
            step=step,
            loss=loss,
            gradient_norm=norm,
            clipped=training.gradient_clip is not None and norm > training.gradient_clip,
            learning_rate=learning_rate,
            seconds=time.perf_counter() - began,
            stop_requested=stop > 0,
        )


def accumulate_gradients(
    objective: Objective, run: ResolvedRun, step: int, *, machine: Machine, world: World
) -> Tensor:
    """Gradients of this process's part of the global mean loss, over its micro-batches; returns that part."""
    mine = world.share(run.training.batch_size)
    loss = torch.zeros((), dtype=machine.dtype, device=machine.device)
    for members in micro_batches(mine, machine.micro_batch_size, machine.kind):
        if objective.dropout:
            torch.manual_seed(seed_of(run.seeds.data, "dropout", step, members.start))
        with machine.autocast():
            part = objective.loss_of(step, members)
        backward(part)
        loss += part.detach()
    return loss
