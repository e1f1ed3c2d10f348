"""When a weight moves, in both languages, and an arm as one line of a command. Reports use the same phrases."""

from __future__ import annotations

from typing import Protocol

from oelm.core.moves import After, Before, Every, Moves
from oelm.core.options import in_use
from oelm.core.parts import ABBREVIATIONS, AS_GIVEN, BASELINE, ROLES, Part, Parts

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


class Treated(Protocol):
    """A model, or an arm."""

    @property
    def parts(self) -> Parts: ...


def described(treated: Treated) -> str:
    """One line: how the parts worth a word start, when they move, and which options are in use."""
    alike: dict[str, list[str]] = {}
    for role in spoken_of(treated.parts):
        name = ABBREVIATIONS.get(role, ROLES[role].words[0])
        alike.setdefault(described_part(treated.parts.of(role)), []).append(name)
    of_parts = [f"{', '.join(names)}: {text}" for text, names in alike.items()]
    return "; ".join([*of_parts, *(option.said(facts) for option, facts in in_use(treated))])


def spoken_of(parts: Parts) -> list[str]:
    """The roles worth a word: what is not the baseline's; queries and keys unless other parts alone are treated."""
    baseline = (BASELINE, AS_GIVEN)
    treated = [role for role, part in parts.items() if all(part != each.of(role) for each in baseline)]
    others = [role for role in treated if not ROLES[role].drawn_apart]
    return [role for role in ROLES if role in treated or (ROLES[role].drawn_apart and not others)]


def described_part(part: Part) -> str:
    gain = "" if part.gain == 1 else f" x {part.gain:g}"
    share = "" if part.share == 1 else f" (the first {part.share:.0%} of the heads)"
    if part.layers != "all":
        share = f" (layers {layers_of(part)})"
    code, facts = when(part.moves)
    return f"{part.start}{gain}, {WHEN[code][0].format(**facts)}{share}"


def layers_of(part: Part) -> str:
    return ", ".join(map(str, part.layers)) if isinstance(part.layers, list) else part.layers
