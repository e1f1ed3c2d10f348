"""Every score option and repair, each by one setting that has it in use."""

from __future__ import annotations

# Setting -> value, the option's key, and what an arm that sets it says.
OPTIONS_SET = {
    "model.positions": ("rotary", "positions", "rotary positions"),
    "model.tied": (False, "tied", "output layer of its own"),
    "model.scores.source": ("nothing", "scores.source", "equal scores: every token attends uniformly"),
    "model.scores.temperature.kind": ("per_head", "scores.temperature", "a trained temperature per head"),
    "model.scores.query_key_norm": (True, "scores.query_key_norm", "normalised queries and keys"),
    "model.scores.query_key_width": (4, "scores.query_key_width", "queries and keys of width 4 per head"),
    "model.repairs.residual.rank": (2, "repairs.residual", "a residual of rank 2 on Q, K"),
    "model.repairs.shift.per": ("head", "repairs.shift", "a shift of K per head"),
    "model.repairs.convolution.width": (3, "repairs.convolution", "a convolution over 3 tokens before attention"),
}
