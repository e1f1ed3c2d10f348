"""A step of the baseline now against the same step at another commit. The ratio comes last.

    python benchmarks/against_commit.py [COMMIT] [--vocabulary 50257] [--contender NAME] [--most-rounds 200]

Medium-512 with a vocabulary of 4,096, or another one, and one sequence of 512; the commit before this one, if none is
given. Each contender is a process of its own; the code as it is
now runs twice, as a control. In each round all take a step in random order; goes on until the half-width of the 95 %
interval is at most 1 %, or the rounds are used up.
"""

from __future__ import annotations

import argparse
import random

from interleaved import Contender, checkout, ratio_line
from oelm.timing.ratios import interval

SEQUENCES, VOCABULARY = 1, 4096
LEAST_ROUNDS, WARMUPS, HALF_WIDTH = 30, 4, 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", default="HEAD~1")
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    parser.add_argument("--contender", default="oelm", help="one of benchmarks/contender.py, which both versions have")
    parser.add_argument("--most-rounds", type=int, default=200)
    options = parser.parse_args()
    name, sizes = options.contender, {"batch_size": SEQUENCES, "vocabulary": options.vocabulary}
    with checkout(options.commit) as then:
        contenders = {
            "now": Contender(name, sizes),
            "now again": Contender(name, sizes),
            "then": Contender(name, sizes, program=then / "benchmarks" / "contender.py", sources=then / "src"),
        }
        _take_turns(contenders, options.most_rounds)
    print(ratio_line("control, now / now", _ratios(contenders, "now", "now again"), "equal"))
    print(ratio_line(f"step, now / {options.commit}", _ratios(contenders, "now", "then"), "upper bound at most 1.02"))


def _take_turns(contenders: dict[str, Contender], most_rounds: int) -> None:
    order = list(contenders.values())
    for contender in order * WARMUPS:
        contender.step()
    for number in range(1, most_rounds + 1):
        random.shuffle(order)
        for contender in order:
            contender.seconds.append(contender.step())
        if number % 10 == 0:
            middle, low, high = interval(_ratios(contenders, "now", "then"))
            print(f"round {number}: {middle:.4f} ({low:.4f} to {high:.4f})", flush=True)
            if number >= LEAST_ROUNDS and (high - low) / 2 <= HALF_WIDTH:
                break
    for contender in order:
        contender.close()


def _ratios(contenders: dict[str, Contender], one: str, other: str) -> list[float]:
    return [a / b for a, b in zip(contenders[one].seconds, contenders[other].seconds, strict=True)]


if __name__ == "__main__":
    main()
