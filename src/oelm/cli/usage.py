"""What typer finds wrong with a command line, in our words: one line, with the option and what it takes.

Older releases of typer check values by click, newer ones by pydantic: both ways of saying it are understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import typer

from oelm.errors import did_you_mean

UsageError: Any = typer.BadParameter.__bases__[0]  # of whichever click typer brings along
BOUNDS = {r"greater than or equal to (\S+)": "at least", r"less than or equal to (\S+)": "at most",
          r"(\S+)<=x": "at least", r"x>=([^\s.]+)": "at least", r"x<=([^\s.]+)": "at most"}  # fmt: skip
TYPES = {
    r"valid integer": "not a whole number",
    r"valid (number|float)": "not a number",
    r"valid bool": "not true or false",
}


def in_our_words(error: Any) -> str:
    """Of a UsageError: a value by its option, anything else with the place of its help."""
    message, param = str(error.message), getattr(error, "param", None)
    if param is not None:
        return _about_value(error, message, param) if message else f"{_name(param)}: missing{_help_of(error)}"
    for pattern, words in {
        r"No such option: (\S+)": "no such option",
        r"No such command '(.*?)'": "no such verb",
        r"Option '(\S+)' requires": "needs a value",
        r"Option '(\S+)' does not take": "takes no value",
        r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)": "one argument too many",
    }.items():
        if found := re.match(pattern, message):
            return f"{found[1]}: {words}{_meant(found[1], _known(error))}{_help_of(error)}"
    return f"{message[:1].lower()}{message[1:].rstrip('.')}{_help_of(error)}"


def _about_value(error: Any, message: str, param: Any) -> str:
    """--seed -1: at least 0"""
    if found := re.match(r"\w+ '(.*)' is (not readable|not writable)", message):
        return f"{_name(param)} {found[1]}: {found[2]}"
    given = f"{_name(param)} {_value(error, message)}".strip()
    bounds = [f"{word} {found[1]}" for pattern, word in BOUNDS.items() if (found := re.search(pattern, message))]
    kinds = [kind for pattern, kind in TYPES.items() if re.search(pattern, message)]
    return f"{given}: {' and '.join(bounds) or ' or '.join(kinds) or message}"


def _value(error: Any, message: str) -> str:
    problems: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    if problems:
        return str(problems[0].get("input"))
    found = re.match(r"'?(.*?)'? is not ", message)
    return found[1] if found else ""


def _name(param: Any) -> str:
    if param.opts[0].startswith("-"):
        return str(max(param.opts, key=len))
    return str(param.metavar or param.name.upper())


def _known(error: Any) -> Iterable[str]:
    if error.ctx is None:
        return []
    command = error.ctx.command
    return [*getattr(command, "commands", []), *(name for param in command.params for name in param.opts)]


def _meant(word: str, known: Iterable[str]) -> str:
    return did_you_mean(word, (each for each in known if each != word))


def _help_of(error: Any) -> str:
    if error.ctx is None:
        return ""
    return f" ({error.ctx.command_path.replace('{HOST}', 'HOST')} --help)"
