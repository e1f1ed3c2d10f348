"""Text as a reader may meet it: a character that would act on a terminal, or hide in a report, is shown as an escape.

Whatever was stored, given or sent by somebody passes through here on its way to a screen, a log line or a report.
"""

from __future__ import annotations

import json
import re
from typing import Any

# Control characters (newline and tab are layout), line separators, changes of the direction of text, half characters.
_ACTING = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_ACTS = re.compile(f"[{_ACTING}]")


# Folders that stand for something a reader knows by another name. Only here does all text pass on its way out.
_SHOWN_AS: dict[str, str] = {}


def show_as(folder: object, name: object) -> None:
    """Whatever is said of a temporary folder is said of what was unpacked into it."""
    _SHOWN_AS[str(folder)] = str(name)


def visible(text: object) -> str:
    """The text with each such character as \\x1b or \\u202e."""
    for folder, name in _SHOWN_AS.items():
        text = str(text).replace(folder, name)
    return _ACTS.sub(lambda found: _escape(ord(found.group())), str(text))


def _escape(number: int) -> str:
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def json_text(value: Any, *, indent: int | None = 2) -> str:
    """JSON in which letters of every script are themselves, and such characters are JSON's own escapes."""
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    for folder, name in _SHOWN_AS.items():
        text = text.replace(folder, json.dumps(name, ensure_ascii=False)[1:-1])
    return _ACTS.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
