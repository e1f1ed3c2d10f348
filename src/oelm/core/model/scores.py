"""How scores are formed: rotary positions as Llama's, normalised queries and keys as Qwen3's.

B batch, T time, H heads, K width of a head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

ROTARY_BASE = 10_000.0
NORM_EPSILON = 1e-6


class Places(NamedTuple):
    """Where the tokens stand, as far as a block needs to know it."""

    rotation: tuple[Tensor, Tensor] | None = None  # cosines and sines, T K or B 1 T K
    positions_BT: Tensor | None = None  # where sequences of a batch begin at different places (padding)
    real_BT: Tensor | None = None  # which of them are no padding; None: all


def rotation_of(positions: Tensor, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position's angles, which are computed in single precision."""
    exponents = torch.arange(0, width, 2, device=positions.device).float() / width
    angles = positions[..., None].float() * (1.0 / ROTARY_BASE**exponents)
    angles = torch.cat([angles, angles], dim=-1)
    if positions.dim() == 2:
        angles = angles.unsqueeze(1)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotated(x_BHTK: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Channel i turns with channel i + K/2."""
    cosines, sines = (table.to(x_BHTK.dtype) for table in rotation)
    first, second = x_BHTK.chunk(2, dim=-1)
    return x_BHTK * cosines + torch.cat([-second, first], dim=-1) * sines


def normalised(x_BHTK: Tensor, gain_K: Tensor) -> Tensor:
    return functional.rms_norm(x_BHTK, gain_K.shape, gain_K.to(x_BHTK.dtype), NORM_EPSILON)
