"""A step of the frozen arm against its trained twin, in one process, there and back by turns. The ratio comes last.

    python benchmarks/frozen_against_trained.py [--vocabulary 50257] [--most-rounds 60]

Goes on until the half-width of the 95 % interval is at most 1 %, or the rounds are used up.
"""

from __future__ import annotations

import argparse

from contender import ours, sized
from interleaved import ratio_line
from oelm.accounting import training_flops_per_token
from oelm.timing.ratios import half_width, interval, paired
from oelm.timing.rounds import rounds_of

FROZEN, TRAINED = "frozen_head_orthogonal", "trained_head_orthogonal"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--least-rounds", type=int, default=10)
    parser.add_argument("--most-rounds", type=int, default=60)
    parser.add_argument("--compile", default="on", choices=["on", "off"])
    options = parser.parse_args()
    sizes = {"batch_size": options.batch_size, "vocabulary": options.vocabulary}
    step = {arm: ours(sizes, arm, precision="auto", compiled=options.compile) for arm in (FROZEN, TRAINED)}
    for _ in range(2):
        for arm in step:
            step[arm]()
    ratios: list[float] = []
    for number, seconds in enumerate(rounds_of(step, rounds=options.most_rounds, steps_per_round=2), start=1):
        ratios = paired(seconds[FROZEN], seconds[TRAINED])
        middle, low, high = interval(ratios)
        print(f"round {number}: {ratios[-1]:.4f}, so far {middle:.4f} ({low:.4f} to {high:.4f})", flush=True)
        if number >= options.least_rounds and half_width(ratios) <= 0.01:
            break
    frozen_flops, trained_flops = (training_flops_per_token(sized(sizes, arm).model) for arm in (FROZEN, TRAINED))
    print(f"arithmetic alone allows {frozen_flops / trained_flops:.3f} at vocabulary {options.vocabulary}")
    print(ratio_line("step, frozen / trained", ratios, "upper bound at most 1.00, half-width at most 0.01"))


if __name__ == "__main__":
    main()
