"""Named arms: every treatment and control as data. A new method is a new entry here, not a new class."""

from __future__ import annotations

import difflib

from oelm.aliases import ALIASES
from oelm.config import After, Attention, Before, Every, Moves, Never, Projection, StartName
from oelm.errors import UserError


def _query_and_key(start: StartName = "normal", moves: Moves | None = None, share: float = 1.0) -> Attention:
    projection = (
        Projection(start=start, share=share) if moves is None else Projection(start=start, moves=moves, share=share)
    )
    return Attention(query=projection, key=projection)


GPT_ARMS: dict[str, Attention] = {
    "trained": Attention(),
    # Is it the start? Trained twins of the frozen arms, equal to them bit for bit before the first update.
    "trained_scaled_normal": _query_and_key("scaled_normal"),
    "trained_orthogonal": _query_and_key("orthogonal"),
    "trained_head_orthogonal": _query_and_key("head_orthogonal"),
    # The idea, head-wise and over the whole matrix.
    "frozen_orthogonal": _query_and_key("orthogonal", Never()),
    "frozen_head_orthogonal": _query_and_key("head_orthogonal", Never()),
    # Controls: is it the freezing, the orthogonality, or the scale?
    "frozen_normal": _query_and_key("normal", Never()),
    "frozen_scaled_normal": _query_and_key("scaled_normal", Never()),
    # Partly frozen: a share of the heads.
    "frozen_half": _query_and_key("head_orthogonal", Never(), share=0.5),
    "frozen_quarter": _query_and_key("head_orthogonal", Never(), share=0.25),
    # Temporarily frozen.
    "every_n": _query_and_key("head_orthogonal", Every(steps=10)),
    "late_unfreeze": _query_and_key("head_orthogonal", After(fraction=0.8)),
    "progressive_unfreeze": _query_and_key("head_orthogonal", After(fraction=0.5, order="layer_by_layer")),
    "train_then_freeze": _query_and_key("head_orthogonal", Before(fraction=0.2)),
}

# For models that come with weights: stock fine-tuning, and what separates freezing from losing what was learnt.
PRETRAINED_ARMS: dict[str, Attention] = {
    "fine_tuned": _query_and_key("keep"),
    "fine_tuned_orthogonalised": _query_and_key("orthogonalised"),
    "frozen_pretrained": _query_and_key("keep", Never()),
    "frozen_orthogonalised": _query_and_key("orthogonalised", Never()),
}

ARMS = GPT_ARMS | PRETRAINED_ARMS


def canonical_name(name: str) -> str:
    known = ALIASES.get(name, name)
    if known in ARMS:
        return known
    close = difflib.get_close_matches(name, [*ARMS, *ALIASES], n=1)
    suggestion = f"; did you mean {close[0]}?" if close else ""
    raise UserError(f"arm: unknown name {name!r}{suggestion} (known: {', '.join(ARMS)})")


def arm(name: str) -> Attention:
    """The attention spec of a named arm, by any of its names."""
    return ARMS[canonical_name(name)]
