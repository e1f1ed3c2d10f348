"""What differs on purpose between the base and the code here, each with its reason. Everything else is a failure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatch


@dataclass(frozen=True)
class Intended:
    """In files `file` of cases `case` (patterns): keys, columns, what `text` matches, last bits, or all of it."""

    reason: str
    case: str = "*"
    file: str = "*"
    keys: tuple[str, ...] = ()  # of JSON, as patterns of dotted keys
    columns: tuple[str, ...] = ()  # of tables as CSV, by their names
    text: str = ""  # a regular expression; what it matches is left out on both sides
    close: float = 0.0  # of numbers: how far apart, of the larger of the two or of one, they may be
    whole_file: bool = False

    def is_about(self, case: str, file: str) -> bool:
        return fnmatch(case, self.case) and (fnmatch(file, self.file) or fnmatch(file.rsplit("/", 1)[-1], self.file))

    def covers_key(self, key: str) -> bool:
        return any(fnmatch(key, pattern) or fnmatch(key, f"*.{pattern}") for pattern in self.keys)

    def without(self, text: str) -> str:
        return re.sub(self.text, "", text, flags=re.MULTILINE) if self.text else text


INTENDED: tuple[Intended, ...] = (
    Intended(
        "Of a tied matrix the base added the rows of the embedding apart from the output layer's gradient, and so in "
        "another order where there are several processes: the last bits of such runs differ.",
        case="*two ranks/tied/*",
        close=1e-4,
    ),
    Intended(
        "Reported text that also stands in train is counted with the floor.",
        keys=("seen_in_train",),
        columns=("seen_in_train",),
    ),
    Intended(
        "A frame of verdicts has their reservations.",
        file="frames/verdicts.csv",
        columns=("reservations",),
    ),
    Intended("ALiBi, shares of layers and base scales are gone.", case="text/keys", whole_file=True),
    Intended("Every bench that is read has a seal.", file="analysis_results.json", keys=("bench.sealed",)),
    Intended("report.md has this table", file="comparison_table.md", whole_file=True),
    Intended("the same figures are in figures/", case="report*", file="val_ppl_comparison.png", whole_file=True),
    Intended("the same figures are in figures/", case="report*", file="parameter_distribution.png", whole_file=True),
    Intended(
        "which formats there are",
        text=r"(?<=comparison_table \(text, CSV), Markdown|(?<=comparison_table（文本、CSV)、Markdown",
    ),
    Intended("a seed has one value, not a list of draws", keys=("solving*.accuracies", "solving*.solved")),
    Intended("the keys draws and futility are gone", keys=("draw", "draws", "futility")),
    Intended("the same: digest of what a look was taken for", file="choices.json", keys=("digest",)),
    Intended(
        "the same, in words",
        text=r" Of seeds with several draws, runs are compared draw by draw, as many as both arms have, and the side "
        r"that is ahead in more of them is ahead with the seed\."
        r"|种子有多次抽取时逐次比较（次数以两组共有者为限），领先次数较多的一方在该种子上领先。"
        r"|(?<=one for each seed) and draw|(?<=，每个种子)的每次抽取(?=一次)"
        r"| No claim is given up early for want of prospects\.|不会因前景不佳而提前放弃任何假设。",
    ),
)
