"""Names of LaTeX macros, which are made of letters alone: no two things have the same one, and what else a study has
does not matter for any.

`\\adjustedPForCostInDemo` is the adjusted p of the claim `cost` in the study `demo`. What joins the words of a name (an
underscore; in claims, a hyphen) makes the letter after it a capital, digits are spelled out, and so is whatever else is
no small letter. A capital then begins either one of the words below or a letter after a joint, and `spelled_out` writes
no letter that could be taken for such a word.
"""

from __future__ import annotations

from typing import Literal

Of = Literal["arm", "claim"]
BEFORE: dict[Of, str] = {"arm": "Of", "claim": "For"}  # the name of an arm or a claim
BEFORE_STUDY = "In"
JOINTS: dict[Of, str] = {"arm": "_", "claim": "-"}  # what is usual between the words of their names
_DIGITS = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")
_CHARACTERS = {str(digit): word for digit, word in enumerate(_DIGITS)} | {
    "_": "Under", "-": "Dash", " ": "Space", ".": "Dot", "+": "Plus",
}  # fmt: skip
_CAPITAL = "Cap"  # then the small letter
_OTHER, _END = "Char", "End"  # around the number of a character, in sixteen letters from a to p
WORDS = (*_CHARACTERS.values(), _CAPITAL, _OTHER, _END, *BEFORE.values(), BEFORE_STUDY)


def macro_name(measure: str, study: str, *, of: Of | None = None, name: str = "") -> str:
    """`measure` begins with a small letter and contains none of the words before a name. LaTeX refuses one that begins
    with `end`.
    """
    assert not measure.startswith("end"), measure
    about = BEFORE[of] + spelled(name, joint=JOINTS[of]) if of else ""
    return f"{measure}{about}{BEFORE_STUDY}{spelled(study)}"


def spelled(name: str, *, joint: str = "_") -> str:
    """A name as letters, begun with a capital. A joint before a letter makes it a capital."""
    return spelled_out(f"{joint}{name}", joint=joint)


def spelled_out(text: str, *, joint: str = "_") -> str:
    place, found = 0, ""
    while place < len(text):
        character, rest = text[place], text[place + 1 :]
        place += 1
        if character == joint and _is_small(rest[:1]) and not rest.startswith(_SMALL_WORDS):
            found += rest[0].upper()
            place += 1
        elif _is_small(character):
            found += character
        else:
            found += _word(character)
    return found


_SMALL_WORDS = tuple(word.lower() for word in WORDS)


def _is_small(character: str) -> bool:
    return "a" <= character <= "z"


def _word(character: str) -> str:
    if word := _CHARACTERS.get(character):
        return word
    if "A" <= character <= "Z":
        return _CAPITAL + character.lower()
    return _OTHER + "".join("abcdefghijklmnop"[int(digit, 16)] for digit in f"{ord(character):x}") + _END
