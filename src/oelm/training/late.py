"""What a step says of itself stays on the device and is read one step late, so that the device never waits for us.

An update with a gradient or a loss that is no number is left out by the optimizer, and so is every later one: when the
numbers are read and the run is stopped, the weights are still those of the last good step.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oelm.training.optimizer import set_learning_rate, total_norm


class Moment:
    """A point in the order of a device's work, which the host can wait for and count time from."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None
        self._at = time.perf_counter()
        if self._event is not None:
            self._event.record()

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()

    def seconds_until(self, later: Moment) -> float:
        """Of two that are over."""
        if self._event is None or later._event is None:
            return later._at - self._at
        return float(self._event.elapsed_time(later._event)) / 1000


@dataclass(frozen=True)
class StepNumbers:
    loss: float
    stop: float
    gradient_norm: float
    seconds: float


@dataclass(frozen=True)
class LaunchedStep:
    """A step whose work is under way, and its numbers on their way to the host."""

    step: int
    learning_rate: float
    began: Moment
    ended: Moment
    numbers: Tensor
    graphs: int  # that this process had compiled when the step was launched

    def read(self) -> StepNumbers:
        self.ended.wait()
        loss, stop, norm = self.numbers.tolist()
        return StepNumbers(loss, stop, norm, self.began.seconds_until(self.ended))


class GuardedUpdates:
    """Updates that clip, and that happen only while every number so far was finite; decided on the device."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: list[Tensor], limit: float | None) -> None:
        self._optimizer, self._parameters, self._limit = optimizer, parameters, limit
        self._stopped: Tensor | None = None

    def take(self, loss: Tensor, learning_rate: float) -> Tensor:
        """One update; returns the gradient's norm before clipping."""
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        norm = total_norm(gradients).to(loss.device)
        bad = (~(loss.isfinite() & norm.isfinite())).to(torch.float32)
        self._stopped = bad if self._stopped is None else torch.maximum(self._stopped, bad)
        scale = None if self._limit is None else (norm / self._limit).clamp(min=1.0)
        if scale is not None and scale.dtype == torch.float64:  # more digits than the optimizer's own factor has
            torch._foreach_div_(gradients, scale)
            scale = None
        guarded: Any = self._optimizer
        guarded.grad_scale, guarded.found_inf = scale, self._stopped
        set_learning_rate(self._optimizer, learning_rate)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return norm
