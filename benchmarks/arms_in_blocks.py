"""Arms that take turns in one process, as `oelm bench` measures them, until every ratio is known well enough."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence

import torch

from contender import ours
from oelm.execution.timing.blocks import Build, blocks_of, judged
from oelm.study.bench import LEAST_BLOCKS, Bench, Ratio

AGAIN = "baseline again"
HALF_WIDTH = 0.01
Contender = tuple[str, Sequence[str]]  # an arm, and --set pairs


def options_of(description: str | None, *, vocabulary: int, batch_size: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, default=vocabulary)
    parser.add_argument("--batch-size", type=int, default=batch_size)
    parser.add_argument("--steps", type=int, default=2, help="of each contender in a block")
    parser.add_argument("--most-rounds", type=int, default=60)
    parser.add_argument("--compile", default="on", choices=["on", "off"])
    parser.add_argument("--precision", default="auto", choices=["auto", "float32", "bfloat16"])
    return parser.parse_args()


def measured(contenders: dict[str, Contender], baseline: str, options: argparse.Namespace) -> Bench:
    """Blocks in random order, the baseline twice as a control; ends when every half-width is at most 1 %."""
    sizes = {"batch_size": options.batch_size, "vocabulary": options.vocabulary}
    seconds: dict[str, list[float]] = {name: [] for name in (*contenders, AGAIN)}
    records = []
    for block in blocks_of(
        {name: _building(sizes, contenders[baseline if name == AGAIN else name], options) for name in seconds},
        blocks=options.most_rounds,
        steps=options.steps,
        threads=torch.get_num_threads(),
        seed=secrets.randbits(32),
        may_rebuild=options.compile == "off",
    ):
        for name, times in seconds.items():
            times.append(block.seconds[name])
        records = judged([*records, block.record])
        arms = {name: seconds[name] for name in contenders}
        bench = Bench(baseline, arms, seconds[AGAIN], tuple(tuple(each.disturbed) for each in records))
        ratios = [bench.ratio(name, baseline) for name in contenders if name != baseline]
        so_far = ", ".join(
            f"{ratio.middle:.4f} +- {ratio.half_width:.4f}" if ratio else "too little" for ratio in ratios
        )
        print(f"block {len(records)}, {len(bench.quiet)} undisturbed, so far {so_far}", flush=True)
        if all(ratio and ratio.blocks >= LEAST_BLOCKS and ratio.half_width <= HALF_WIDTH for ratio in ratios):
            break
    return bench


def ratio_text(ratio: Ratio) -> str:
    return f"{ratio.middle:.3f} (95 % {ratio.low:.3f} to {ratio.high:.3f}, n={ratio.blocks})"


def can_decide(bench: Bench) -> bool:
    """Says so if it cannot."""
    if not bench.can_decide:
        print(
            f"nothing decided: {len(bench.quiet)} of {bench.blocks} blocks were undisturbed, {LEAST_BLOCKS} are needed"
        )
    return bench.can_decide


def _building(sizes: dict[str, int], contender: Contender, options: argparse.Namespace) -> Build:
    arm, assignments = contender

    def build():
        step = ours(sizes, arm, precision=options.precision, compiled=options.compile, assignments=assignments)
        for _ in range(2):
            step()
        return step

    return build
