"""Which keys each kind of head points to, and the positions at which the kinds point to different ones.

B sequences, T time of what asks, S time of what is seen. A position counts if its token has occurred before and no key
belongs to two kinds: then the scores of a head are shares of one whole. It does not count if its token is also the one
before it, the one two before it, or the first; nor if its token has stood twice in a row; nor where a probe asks for
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oelm.models.heads.tokens import Sequences


@dataclass(frozen=True)
class Keys:
    of_kind: dict[str, np.ndarray]  # B by T by S, true for the keys of a kind
    counted: np.ndarray  # B by T


def keys_of(scored: Sequences) -> Keys:
    tokens_BT = scored.tokens_BT
    sequences, time = tokens_BT.shape
    same_BTS = tokens_BT[:, :, None] == tokens_BT[:, None, :]
    after_BTS = np.zeros_like(same_BTS)
    after_BTS[:, :, 1:] = same_BTS[:, :, :-1]
    places = {
        "previous": np.eye(time, k=-1, dtype=bool),
        "duplicate": same_BTS & np.tri(time, k=-1, dtype=bool),
        "induction": after_BTS & np.tri(time, dtype=bool),
        "current": np.eye(time, dtype=bool),
        "first": np.broadcast_to(np.arange(time) == 0, (time, time)),
    }
    of_kind = {kind: np.broadcast_to(keys, (sequences, time, time)) for kind, keys in places.items()}
    kinds_of_key_BTS = np.sum(list(of_kind.values()), axis=0)
    counted_BT = of_kind["duplicate"].any(-1) & (kinds_of_key_BTS <= 1).all(-1)
    return Keys(of_kind, counted_BT if scored.asked_BT is None else counted_BT & scored.asked_BT)
