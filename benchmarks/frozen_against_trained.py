"""A step of the frozen arm against its trained twin, as `oelm bench` measures it. The ratio comes last.

    python benchmarks/frozen_against_trained.py [--vocabulary 50257] [--most-rounds 60]

Blocks in random order, the trained arm twice as a control; goes on until the half-width of the 95 % interval is at most
1 %, or the rounds are used up. A round is a block.
"""

from __future__ import annotations

import argparse
import secrets

import torch

from contender import ours, sized
from oelm.accounting import training_flops_per_token
from oelm.study.bench import LEAST_BLOCKS, Bench
from oelm.timing.blocks import Build, blocks_of
from oelm.timing.circumstances import judged

FROZEN, TRAINED, AGAIN = "frozen_head_orthogonal", "trained_head_orthogonal", "trained again"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=2, help="of each contender in a block")
    parser.add_argument("--most-rounds", type=int, default=60)
    parser.add_argument("--compile", default="on", choices=["on", "off"])
    options = parser.parse_args()
    sizes = {"batch_size": options.batch_size, "vocabulary": options.vocabulary}
    contenders = {name: _building(sizes, name, options.compile) for name in (FROZEN, TRAINED, AGAIN)}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    records, ratio = [], None
    for block in blocks_of(
        contenders,
        blocks=options.most_rounds,
        steps=options.steps,
        threads=torch.get_num_threads(),
        seed=secrets.randbits(32),
        may_rebuild=options.compile == "off",
    ):
        for name, times in seconds.items():
            times.append(block.seconds[name])
        records = judged([*records, block.record])
        arms = {name: seconds[name] for name in (FROZEN, TRAINED)}
        bench = Bench(TRAINED, arms, seconds[AGAIN], tuple(tuple(each.disturbed) for each in records))
        ratio = bench.ratio(FROZEN, TRAINED)
        so_far = f"{ratio.middle:.4f} ({ratio.low:.4f} to {ratio.high:.4f})" if ratio else "too little"
        print(f"block {len(records)}, {len(bench.quiet)} undisturbed, so far {so_far}", flush=True)
        if ratio and ratio.blocks >= LEAST_BLOCKS and ratio.half_width <= 0.01:
            break
    frozen_flops, trained_flops = (training_flops_per_token(sized(sizes, arm).model) for arm in (FROZEN, TRAINED))
    print(f"arithmetic alone allows {frozen_flops / trained_flops:.3f} at vocabulary {options.vocabulary}")
    if ratio is None or bench.is_busy:
        print(f"machine busy: {len(bench.quiet)} of {bench.blocks} blocks were undisturbed")
        return
    control = bench.control
    print(f"control, trained / trained: {control.middle:.3f} (95 % {control.low:.3f} to {control.high:.3f})")
    print(
        f"step, frozen / trained: {ratio.middle:.3f} (95 % {ratio.low:.3f} to {ratio.high:.3f}, n={ratio.blocks}); "
        "upper bound at most 1.00, half-width at most 0.01"
    )


def _building(sizes: dict[str, int], name: str, compiled: str) -> Build:
    def build():
        step = ours(sizes, TRAINED if name == AGAIN else name, precision="auto", compiled=compiled)
        for _ in range(2):
            step()
        return step

    return build


if __name__ == "__main__":
    main()
