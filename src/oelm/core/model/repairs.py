"""What the options of core/options.py compute: each repair is one function, and begins as if it were not there.

B batch, T time, H heads, K width of a head, D model width, W width of a convolution. Time is the dimension before the
last. What is repaired keeps its precision, whatever that of the weights: otherwise a slower product would follow.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from oelm.core.config import ResolvedModel
from oelm.core.model.scores import Places
from oelm.core.options import added_to_a_layer


class Cache(Protocol):
    """What attention and repairs need of a cache of one layer."""

    def extended(self, key_BHTK: Tensor, value_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of all positions seen so far, these included."""
        ...

    def preceded(self, name: str, values: Tensor, count: int) -> Tensor:
        """The last `count` steps that came under this name (zeros where there were none), then `values`."""
        ...


class Repairable(nn.Module):
    """A module of a block whose projections may have a residual."""

    def __init__(self, place: str, model: ResolvedModel) -> None:
        super().__init__()
        self.added: tuple[str, ...] = ()  # the names of the weights that options add at this place of a block
        for _, path, added in added_to_a_layer(model):
            where, _, name = path.partition(".")
            if where == place:
                self.register_parameter(name, nn.Parameter(torch.empty(added.shape)))
                self.added += (name,)
        self.nonlinear = model.repairs.residual.nonlinear

    def weight_added(self, name: str) -> Tensor | None:
        """The added weight of this name; None: the model has no such."""
        return getattr(self, name) if name in self.added else None

    def projected(self, part: str, x: Tensor) -> Tensor:
        """What a part makes of x, plus its residual."""
        made: Tensor = getattr(self, part)(x)
        inner = self.weight_added(f"{part}_residual_in")
        if inner is None:
            return made
        reduced = functional.linear(x, inner)
        if self.nonlinear:
            reduced = functional.gelu(reduced, approximate="tanh")
        return made + functional.linear(reduced, getattr(self, f"{part}_residual_out"))


def shifted(x_BHTK: Tensor, share: Tensor, name: str, cache: Cache | None, places: Places) -> Tensor:
    """x + share x_previous."""
    before_BHTK = _preceded(name, x_BHTK, 1, cache, places)[:, :, :-1]
    return (x_BHTK + share[:, None] * _reaching(before_BHTK, 1, places)).to(x_BHTK.dtype)


def convolved(x_BTD: Tensor, weight_WD: Tensor, cache: Cache | None, places: Places) -> Tensor:
    """x + a causal depthwise convolution of x; the first weight is the current token's."""
    width, time = len(weight_WD), x_BTD.shape[1]
    window = x_BTD if width == 1 else _preceded("convolution", x_BTD, width - 1, cache, places)
    made = x_BTD + weight_WD[0] * x_BTD
    for back in range(1, width):
        start = width - 1 - back
        made = made + weight_WD[back] * _reaching(window[:, start : start + time], back, places)
    return made.to(x_BTD.dtype)


def _preceded(name: str, values: Tensor, count: int, cache: Cache | None, places: Places) -> Tensor:
    """Padding is kept as zeros: it may be followed by tokens, which must not depend on what stands in it."""
    values = _where(places.real_BT, values)
    return functional.pad(values, (0, 0, count, 0)) if cache is None else cache.preceded(name, values, count)


def _reaching(earlier: Tensor, back: int, places: Places) -> Tensor:
    """What stood so many tokens before; zero where a sequence had not begun (padding before it)."""
    return _where(None if places.positions_BT is None else places.positions_BT >= back, earlier)


def _where(holds_BT: Tensor | None, values: Tensor) -> Tensor:
    """Zero elsewhere; None: it holds everywhere."""
    if holds_BT is None:
        return values
    holds = holds_BT.unsqueeze(-1)
    return values * (holds if values.dim() == 3 else holds.unsqueeze(1))
