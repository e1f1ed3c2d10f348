"""What a run of the tests left out, and the commands that install what was missing: said at its end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

_COMMAND = re.compile(r"(apt-get install|pip install)((?: +[^ ;,:]+)+)")


def advice(reasons: Iterable[str]) -> Iterator[str]:
    """From the reasons of skipped tests: one command for each program that installs, then every other reason."""
    wanted: dict[str, dict[str, None]] = {}
    counts: Counter[str] = Counter()
    for reason in reasons:
        command = _COMMAND.search(reason)
        if command is None:
            counts[reason] += 1
            continue
        counts[command[1]] += 1
        packages = (word for word in command[2].split() if not word.startswith("-"))
        wanted.setdefault(command[1], {}).update(dict.fromkeys(packages))
    for command, packages in wanted.items():
        flags = " -y" if command.startswith("apt-get") else ""
        yield f"{counts.pop(command)} for want of something that this installs: {command}{flags} {' '.join(packages)}"
    for reason, count in counts.most_common():
        yield f"{count}: {reason}"
