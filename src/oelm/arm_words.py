"""When a weight moves, in both languages, and an arm as one line of a command. Reports use the same phrases."""

from __future__ import annotations

from oelm.config import After, Attention, Before, Every, Moves, Projection

# English, Chinese, by code.
WHEN: dict[str, tuple[str, str]] = {
    "always": ("trained", "可训练"),
    "never": ("frozen", "冻结"),
    "every": ("moves every {steps} steps", "每 {steps} 步更新一次"),
    "after": ("frozen until {percent} of training", "训练至 {percent} 后解冻"),
    "after_layer_by_layer": (
        "frozen until {percent} of training, then unfrozen layer by layer",
        "训练至 {percent} 后逐层解冻",
    ),
    "before": ("trained until {percent} of training, then frozen", "训练至 {percent} 后冻结"),
}


def when(moves: Moves) -> tuple[str, dict[str, object]]:
    """The code of the phrase, and what is inserted into it."""
    match moves:
        case Every(steps=steps):
            return "every", {"steps": steps}
        case After(fraction=fraction, order=order):
            return "after" if order == "together" else f"after_{order}", {"percent": f"{fraction:.0%}"}
        case Before(fraction=fraction):
            return "before", {"percent": f"{fraction:.0%}"}
    return moves.kind, {}


def described(spec: Attention) -> str:
    """One line: how queries and keys start, and when they move."""
    query, key = _described_projection(spec.query), _described_projection(spec.key)
    return f"Q, K: {query}" if query == key else f"Q: {query}; K: {key}"


def _described_projection(projection: Projection) -> str:
    gain = "" if projection.gain == 1 else f" x {projection.gain:g}"
    share = "" if projection.share == 1 else f" (the first {projection.share:.0%} of the {projection.share_of})"
    code, facts = when(projection.moves)
    return f"{projection.start}{gain}, {WHEN[code][0].format(**facts)}{share}"
