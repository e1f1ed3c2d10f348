"""The one error a user can cause: a line that names the offending key or path and says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Shown without a traceback. The message holds one problem a line."""

    exit_code = 2
    can_be_resumed = False  # the same command goes on
    concerns_one_process = False  # of several; otherwise each would say the same


class Stopped(UserError):
    """Ended on request; the exit code is the shell's for that signal."""

    can_be_resumed = True

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


def first_line(error: Exception) -> str:
    """Of what a library says; its name where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """`; did you mean X?`, to end such a line with; nothing where no known word is close."""
    close = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
