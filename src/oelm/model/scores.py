"""How scores are formed: rotary positions as Llama's, ALiBi as Bloom's, normalised queries and keys as Qwen3's.

B batch, T time, H heads, K width of a head, S time seen so far (cache included).
"""

from __future__ import annotations

import math
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


def slopes_of(heads: int) -> list[float]:
    """2^(-8/n), 2^(-16/n), ...; beyond the largest power of two n, every second one of the series for 2 n."""
    whole = 2 ** int(math.log2(heads))
    between = [2 ** (-4 * number / whole) for number in range(1, 2 * (heads - whole), 2)]
    return [2 ** (-8 * number / whole) for number in range(1, whole + 1)] + between


def alibi_mask(
    positions: Tensor, seen_positions: Tensor, visible: Tensor | None, *, heads: int, dtype: torch.dtype
) -> Tensor:
    """What is added to the scores: less, the farther back a token stands, and nothing is seen but what is visible.

    The last T of S positions ask; without `visible` each sees everything up to itself. It has four dimensions (1 for
    the batch may do): PyTorch's fused kernel takes no mask of three.
    """
    # Made on the device: a copy from the host would have it wait for a GPU.
    slopes = torch.cat([torch.full((1,), slope, device=positions.device, dtype=dtype) for slope in slopes_of(heads)])
    distance = (seen_positions[..., None, :] - positions[..., :, None]).to(dtype)
    bias = slopes[:, None, None] * (distance if distance.dim() == 3 else distance[None]).unsqueeze(1)
    if visible is None:
        asking, seen = bias.shape[-2:]
        visible = torch.ones(asking, seen, dtype=torch.bool, device=bias.device).tril(seen - asking)
    if visible.dtype == torch.bool:
        return bias.masked_fill(~visible, -math.inf)
    return bias + visible
