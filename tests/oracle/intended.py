"""What differs on purpose between the base and the code here, each with its reason. Everything else is a failure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatch


@dataclass(frozen=True)
class Intended:
    """Of the files `file` of the cases `case` (patterns): the keys `keys`, or whatever `text` matches, or all of it."""

    reason: str
    case: str = "*"
    file: str = "*"
    keys: tuple[str, ...] = ()  # of JSON, as patterns of dotted keys
    text: str = ""  # a regular expression; what it matches is left out on both sides
    whole_file: bool = False

    def is_about(self, case: str, file: str) -> bool:
        return fnmatch(case, self.case) and (fnmatch(file, self.file) or fnmatch(file.rsplit("/", 1)[-1], self.file))

    def covers_key(self, key: str) -> bool:
        return any(fnmatch(key, pattern) or fnmatch(key, f"*.{pattern}") for pattern in self.keys)

    def without(self, text: str) -> str:
        return re.sub(self.text, "", text, flags=re.MULTILINE) if self.text else text


INTENDED: tuple[Intended, ...] = ()
