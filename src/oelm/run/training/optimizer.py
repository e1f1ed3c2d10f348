"""AdamW (fused), decay by role, and the learning rate of a step. Frozen weights are not in it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from oelm.core.config import ResolvedTraining, Training
from oelm.core.model.parameters import decays, role_of, rules
from oelm.core.moves import Never


class AdamW(torch.optim.AdamW):
    """torch's, without the wrappers that keep its compiler out of these methods: they import it, at the start of every
    run. We compile the blocks of a model, never an optimizer."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def build_optimizer(model: nn.Module, training: Training, role: Callable[[str], str] = role_of) -> AdamW:
    """Every parameter that ever moves. Its state begins when it first moves and counts its own updates."""
    parameters = dict(model.named_parameters())
    moving = [name for name, rule in rules(model).items() if not isinstance(rule.moves, Never)]
    decaying = {name for name in moving if decays(name, role(name))}
    groups = [
        {"params": [parameters[name] for name in moving if name in decaying], "weight_decay": training.weight_decay},
        {"params": [parameters[name] for name in moving if name not in decaying], "weight_decay": 0.0},
    ]
    return AdamW(
        groups,
        lr=training.learning_rate,
        betas=(training.beta1, training.beta2),
        eps=training.epsilon,
        fused=True,
    )


def learning_rate_at(step: int, training: ResolvedTraining) -> float:
    """Linear warm-up, then cosine to the final fraction. Updates are counted from 1."""
    if step <= training.warmup_steps:
        return training.learning_rate * step / training.warmup_steps
    progress = (step - training.warmup_steps) / max(1, training.steps - training.warmup_steps)
    lowest = training.final_learning_rate_fraction
    return training.learning_rate * (lowest + (1 - lowest) * (1 + math.cos(math.pi * progress)) / 2)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def total_norm(gradients: list[Tensor]) -> Tensor:
    """Of all gradients as one vector; stays where they are."""
    return torch.nn.utils.get_total_norm(gradients)


def clip_gradients(parameters: list[Tensor], limit: float | None) -> float:
    """Scale the gradients to a total norm of at most `limit`; returns the norm before."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = total_norm(gradients).item()
    if limit is not None and math.isfinite(norm) and norm > limit:
        torch._foreach_mul_(gradients, limit / norm)
    return norm


def optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Moments and update counts by parameter name, as flat tensors for safetensors."""
    flat: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            flat[f"{name}:{key}"] = value
    return flat


def foreign_moments(optimizer: torch.optim.Optimizer, model: nn.Module, flat: dict[str, Tensor]) -> list[str]:
    """What stored moments have that this optimizer has no place for, a line each."""
    moving = {id(p) for group in optimizer.param_groups for p in group["params"]}
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters() if id(p) in moving}
    lines = []
    for compound, value in flat.items():
        name = compound.rpartition(":")[0]
        if name not in shapes:
            lines.append(f"{compound} belongs to no weight that moves here")
        elif value.dim() and tuple(value.shape) != shapes[name]:
            lines.append(f"{compound} is {tuple(value.shape)} in the file, {shapes[name]} in the model")
    return lines


def restore_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, flat: dict[str, Tensor]) -> None:
    parameters = dict(model.named_parameters())
    for compound, value in flat.items():
        name, _, key = compound.rpartition(":")
        parameter = parameters[name]
        # Update counts of the fused kernel live beside the parameter, in float32.
        optimizer.state[parameter][key] = value.to(parameter.device)
