"""A step of the baseline now against the same step at another commit. The ratio comes last.

    python benchmarks/against_commit.py [COMMIT] [--vocabulary 50257] [--contender NAME] [--most-starts 60]

Medium-512 with a vocabulary of 4,096, or another one, and one sequence of 512; the commit before this one, if none is
given. Each contender is a process of its own; the code as it is now runs twice, as a control. Where a process happens
to have its memory can make it a few per cent slower than an equal one, for as long as it lives. So all of them are
started again and again: each time every one takes a few steps, in random order, and gives one ratio, the geometric mean
of those. Goes on until the half-width of the 95 % interval over the starts is at most 1 %.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from statistics import geometric_mean

from interleaved import Contender, checkout, ratio_line
from ratios import interval, paired

SEQUENCES, VOCABULARY = 1, 4096
LEAST_STARTS, WARMUPS, ROUNDS, HALF_WIDTH = 8, 4, 12, 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", default="HEAD~1")
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    parser.add_argument("--contender", default="oelm", help="one of benchmarks/contender.py, which both versions have")
    parser.add_argument("--most-starts", type=int, default=60)
    options = parser.parse_args()
    sizes = {"batch_size": SEQUENCES, "vocabulary": options.vocabulary}
    ratios: dict[str, list[float]] = {"now again": [], "then": []}
    with checkout(options.commit) as then:
        for number in range(1, options.most_starts + 1):
            for other, ratio in _of_one_start(options.contender, sizes, then).items():
                ratios[other].append(ratio)
            middle, low, high = interval(ratios["then"])
            latest = ratios["then"][-1]
            print(f"start {number}: {latest:.4f}; so far {middle:.4f} ({low:.4f} to {high:.4f})", flush=True)
            if number >= LEAST_STARTS and (high - low) / 2 <= HALF_WIDTH:
                break
    print(ratio_line("control, now / now", ratios["now again"], "equal"))
    print(ratio_line(f"step, now / {options.commit}", ratios["then"], "upper bound at most 1.02"))


def _of_one_start(name: str, sizes: dict[str, int], then: Path) -> dict[str, float]:
    """The time of a step now, in times of each other contender's."""
    contenders = {
        "now": Contender(name, sizes),
        "now again": Contender(name, sizes),
        "then": Contender(name, sizes, program=then / "benchmarks" / "contender.py", sources=then / "src"),
    }
    order = list(contenders.values())
    for contender in order * WARMUPS:
        contender.step()
    for _ in range(ROUNDS):
        random.shuffle(order)
        for contender in order:
            contender.seconds.append(contender.step())
    for contender in order:
        contender.close()
    now = contenders.pop("now").seconds
    return {other: geometric_mean(paired(now, contender.seconds)) for other, contender in contenders.items()}


if __name__ == "__main__":
    main()
