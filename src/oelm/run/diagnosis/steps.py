"""Real steps, and which tensors moved at each: bits are compared, so that not even a rounding escapes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from oelm.core.config import GptRun
from oelm.core.model.freezing import Schedule, thaw_fraction
from oelm.core.model.parameters import Rule, rules
from oelm.core.model.transformer import GPT
from oelm.core.moves import After, Before, Every
from oelm.core.seeding import seed_of
from oelm.run.training.device import Machine
from oelm.run.training.distributed import World
from oelm.run.training.loop import optimization_steps
from oelm.run.training.next_token import NextToken

BATCH_SIZE, SEQ_LEN = 2, 32  # enough for every weight to get a gradient, few enough for seconds
TOKENS = 65_536  # of the data, or drawn
LEAST_LEARNING_RATE = 1e-4


@dataclass(frozen=True)
class Trial:
    """Which tensors moved at which steps, and which parameters had a gradient when the optimizer stepped."""

    numbers: tuple[int, ...]
    moved_at: dict[str, tuple[int, ...]]
    with_gradient: frozenset[str] | None  # None: there was no optimizer to ask


def watched(
    module: nn.Module,
    take: Callable[[int], object],
    numbers: Sequence[int],
    *,
    optimizer: torch.optim.Optimizer | None,
) -> Trial:
    """Take the steps and look at every parameter and buffer after each."""
    moved_at: dict[str, list[int]] = {name: [] for name in tensors_of(module)}
    with_gradient: set[str] = set()

    def look(*_: object) -> None:
        with_gradient.update(name for name, parameter in module.named_parameters() if parameter.grad is not None)

    handle = optimizer.register_step_pre_hook(look) if optimizer is not None else None
    before = {name: tensor.detach().clone() for name, tensor in tensors_of(module).items()}
    try:
        for number in numbers:
            take(number)
            for name, tensor in tensors_of(module).items():
                if name in before and not same_bits(before[name], tensor):
                    moved_at[name].append(number)
                    before[name] = tensor.detach().clone()
    finally:
        if handle is not None:
            handle.remove()
    return Trial(
        numbers=tuple(numbers),
        moved_at={name: tuple(steps) for name, steps in moved_at.items()},
        with_gradient=frozenset(with_gradient) if optimizer is not None else None,
    )


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    return dict(module.named_parameters()) | dict(module.named_buffers())


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Also where a value is not a number, which equals nothing."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    mine, theirs = (each.detach().contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
    return torch.equal(mine, theirs)


# ---- Any module ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def restored(module: nn.Module, optimizer: torch.optim.Optimizer | None) -> Iterator[None]:
    """Whatever the block does, weights, gradients, modes and optimizer are afterwards what they were."""
    values = [(tensor, tensor.detach().clone()) for tensor in tensors_of(module).values()]
    flags = [(p, p.requires_grad, None if p.grad is None else p.grad.clone()) for p in module.parameters()]
    modes = [(part, part.training) for part in module.modules()]
    state = {
        parameter: {key: value.clone() if isinstance(value, Tensor) else value for key, value in kept.items()}
        for parameter, kept in (optimizer.state.items() if optimizer else ())
    }
    groups = [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups] if optimizer else []
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in values:
                tensor.copy_(value)
        for parameter, requires_grad, gradient in flags:
            parameter.requires_grad_(requires_grad)
            parameter.grad = gradient
        for part, training in modes:
            part.training = training
        if optimizer is not None:
            optimizer.state.clear()
            optimizer.state.update(state)
            for group, settings in zip(optimizer.param_groups, groups, strict=True):
                group.update(settings)


def random_gradient_step(module: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> None:
    """Where nobody says how to compute a loss: drawn gradients for whatever requires one, and a real optimizer step."""
    generator = torch.Generator().manual_seed(seed_of("diagnosis", number))
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.randn(parameter.shape, generator=generator).to(parameter.device, parameter.dtype)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


# ---- Our runs ------------------------------------------------------------------------------------------------------


def drawn_tokens(run: GptRun) -> np.ndarray:
    """Tokens for a diagnosis without data: seeded, every id of the vocabulary equally likely."""
    return np.random.default_rng(seed_of(run.seeds.data, "diagnosis")).integers(run.model.vocabulary, size=TOKENS)


def schedule_of(gpt: GPT, run: GptRun) -> Schedule:
    return Schedule(rules(gpt), steps=run.training.steps, num_layers=run.model.num_layers)


def training_step(
    gpt: GPT, optimizer: torch.optim.Optimizer, run: GptRun, tokens: np.ndarray, *, schedule: Schedule
) -> Callable[[int], None]:
    """Update N of the run, by the training loop itself, on a small batch of short sequences."""
    # At one learning rate: that of a warm-up's first step or of a cosine's last may be too small to show in the last
    # bit of a weight of size 1.
    training = {
        "batch_size": BATCH_SIZE,
        "learning_rate": max(run.training.learning_rate, LEAST_LEARNING_RATE),
        "warmup_steps": 0,
        "final_learning_rate_fraction": 1.0,
    }
    short = run.model_copy(
        update={
            "model": run.model.model_copy(update={"seq_len": min(SEQ_LEN, run.model.seq_len)}),
            "training": run.training.model_copy(update=training),
        }
    )
    dtype = gpt.token_embedding.weight.dtype
    machine = Machine(
        device="cpu",
        precision="float64" if dtype == torch.float64 else "float32",
        compile=False,
        threads=torch.get_num_threads(),
        micro_batch_size=short.training.batch_size,
    )

    train, world = tokens[:TOKENS], World()
    objective = NextToken(gpt, short, train=train, held_out=train, machine=machine, world=world)

    def take(number: int) -> None:
        next(
            optimization_steps(
                objective, optimizer, short, schedule=schedule, machine=machine, world=world, start=number - 1
            )
        )

    return take


def telling_steps(schedule: Schedule, *, at_least: int) -> list[int]:
    """Updates that show every rule at rest, moving, and at rest again; filled up with the first ones."""
    numbers: set[int] = set()
    for rule in {(rule.moves, rule.layer): rule for rule in schedule.rules.values()}.values():
        numbers |= _telling_steps_of(rule, schedule)
    for number in range(1, schedule.steps + 1):
        if len(numbers) >= at_least:
            break
        numbers.add(number)
    return sorted(numbers)


def _telling_steps_of(rule: Rule, schedule: Schedule) -> set[int]:
    name = next(name for name, candidate in schedule.rules.items() if candidate == rule)
    candidates = sorted(step for step in _turning_points(rule, schedule) if 1 <= step <= schedule.steps)
    moving = [step for step in candidates if schedule.moves(name, step)]
    resting = [step for step in candidates if step not in moving]
    if not moving:
        return set(resting[:1])
    before = [step for step in resting if step < moving[0]][-1:]
    after = [step for step in resting if step > moving[0]][:1]
    return {*before, moving[0], *after}


def _turning_points(rule: Rule, schedule: Schedule) -> set[int]:
    match rule.moves:
        case Every(steps=steps):
            return {1, steps, steps + 1}
        case After():
            edge = int(thaw_fraction(rule.moves, rule.layer, schedule.num_layers) * schedule.steps)
        case Before(fraction=fraction):
            edge = int(fraction * schedule.steps)
        case _:
            return {1}
    return {1, edge - 1, edge, edge + 1, edge + 2}
