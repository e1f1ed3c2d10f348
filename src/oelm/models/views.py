"""Where tokens stand and what they see, from the masks, positions and caches that users of transformers give.

Nothing here asks a tensor for its values. B batch, T time of the input, S time that is visible (cache included).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from oelm.machine.errors import UserError


class View(NamedTuple):
    """Where each token stands, and what it sees (None: everything up to itself)."""

    positions: Tensor  # T, or B by T
    visible: Tensor | None
    real: Tensor | None = None  # B by T: which tokens are no padding, where a mask says it


def view_of(
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    *,
    cache: Any,
    time: int,
    device: torch.device,
) -> View:
    past = 0 if cache is None else cache.get_seq_length()  # a number, or a tensor that only the device knows
    has_fixed_room = cache is not None and cache.is_compileable
    room = time if cache is None else cache.get_mask_sizes(time, 0)[0]
    places_T, places_S = torch.arange(time, device=device) + past, torch.arange(room, device=device)
    positions = places_T if position_ids is None else position_ids
    earlier_TS = places_S <= places_T[:, None]
    if attention_mask is not None and attention_mask.ndim == 4:  # as create_masks_for_generate makes them
        last_BS = attention_mask[:, 0, -1]  # who comes last sees all that is real, and itself
        real_BT = last_BS.index_select(1, places_T) if attention_mask.dtype == torch.bool else None
        return View(positions, attention_mask, real_BT)
    if attention_mask is None and has_fixed_room:
        return View(positions, earlier_TS)
    if attention_mask is None and position_ids is not None and cache is None:
        return View(positions, _same_text(position_ids) & earlier_TS)
    if attention_mask is None:
        return View(positions, None)
    if not has_fixed_room and attention_mask.shape[1] != room:
        raise UserError(
            f"attention_mask: {attention_mask.shape[1]} positions, but {room} with the {room - time} of the cache"
        )
    real_BS = attention_mask.to(device).bool()
    real_BT, real_BS = real_BS[:, -time:], functional.pad(real_BS, (0, room - real_BS.shape[1]))
    if position_ids is None:
        positions = (real_BS.cumsum(1) - 1).clamp(min=0).index_select(1, places_T)
    own_TS = places_S == places_T[:, None]  # padding sees itself: a row without anything has no softmax
    return View(positions, (earlier_TS & (real_BS[:, None] | own_TS))[:, None], real_BT)


def _same_text(positions_BT: Tensor) -> Tensor:
    """Several texts may stand in one row without padding: where positions do not go on by one, another text begins."""
    begins_BT = functional.pad(positions_BT[..., 1:] != positions_BT[..., :-1] + 1, (1, 0))
    text_BT = begins_BT.cumsum(-1)
    return (text_BT[..., :, None] == text_BT[..., None, :]).unsqueeze(-3)
