"""A step of the frozen arm against its trained twin, as `oelm bench` measures it. The ratio comes last.

    python benchmarks/frozen_against_trained.py [--vocabulary 50257] [--most-rounds 60]

Blocks in random order, the trained arm twice as a control; goes on until the half-width of the 95 % interval is at most
1 %, or the rounds are used up. A round is a block.
"""

from __future__ import annotations

from arms_in_blocks import can_decide, measured, options_of, ratio_text
from contender import sized
from oelm.core.accounting import training_flops_per_token

FROZEN, TRAINED = "frozen_head_orthogonal", "trained_head_orthogonal"


def main() -> None:
    options = options_of(__doc__, vocabulary=50257, batch_size=8)
    sizes = {"batch_size": options.batch_size, "vocabulary": options.vocabulary}
    bench = measured({FROZEN: (FROZEN, ()), TRAINED: (TRAINED, ())}, TRAINED, options)
    frozen_flops, trained_flops = (training_flops_per_token(sized(sizes, arm).model) for arm in (FROZEN, TRAINED))
    print(f"arithmetic alone allows {frozen_flops / trained_flops:.3f} at vocabulary {options.vocabulary}")
    ratio, control = bench.ratio(FROZEN, TRAINED), bench.control
    if not can_decide(bench) or ratio is None or control is None:
        return
    print(f"control, trained / trained: {ratio_text(control)}")
    print(f"step, frozen / trained: {ratio_text(ratio)}; upper bound at most 1.00, half-width at most 0.01")


if __name__ == "__main__":
    main()
