"""What a probe costs: making a batch as a share of a step, and scoring answers alone instead of every position.

    python benchmarks/probes.py [--rounds 60]

Preset `probe` (two layers of width 64, 64 sequences of 64) on one core, in one process: in each round a batch is made,
made again as a control, a step is taken on `recall` with answers at a quarter of the positions, and one that scores
every position, in random order. The vocabulary is large enough for the output layer to matter. The ratios come last.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable

import torch

from interleaved import ratio_line
from oelm.core.config import Execution, Run, resolved
from oelm.core.probes.examples import training_examples
from oelm.core.probes.probe import probe_of
from oelm.core.settings import load_settings
from oelm.execution.timing.workload import TimedArm, Workload, drawn_tokens, workload_of
from oelm.run.training.device import prepare_process, resolve_machine

DATA = "probe:recall?pairs=16&length=64"  # an answer at every fourth position
VOCABULARY = 1024
WARMUPS, AIM_STEPS, AIM_SECONDS = 5, 2000, 150


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    usual, wide = _run("probe:recall"), _run(f"{DATA}&vocabulary={VOCABULARY}")
    # The same tokens for both, at all positions and at the answers.
    everywhere = drawn_tokens(wide, vocabulary=VOCABULARY, seq_len=64)
    contenders = {
        "batch": lambda: _seconds_of_a_batch(usual),
        "batch again": lambda: _seconds_of_a_batch(usual),
        "step": _stepping(usual, workload_of(usual)),
        "answers": _stepping(wide, workload_of(wide)),
        "everywhere": _stepping(wide.model_copy(update={"data": "unused"}), everywhere),
    }
    for _ in range(WARMUPS):
        for take in contenders.values():
            take()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name in random.sample(list(contenders), len(contenders)):
            seconds[name].append(contenders[name]())
    steps = sorted(seconds["step"])
    expected = AIM_STEPS * steps[len(steps) // 2]
    print(f"{AIM_STEPS:,} steps of preset probe on one core: {expected:.0f} s by the median; aim {AIM_SECONDS} s")
    for title, over, under, aim in (
        ("control, making a batch / making it again", "batch", "batch again", "equal"),
        ("making a batch / a step", "batch", "step", "at most 0.05"),
        (f"step, answers alone / every position, vocabulary {VOCABULARY:,}", "answers", "everywhere", "below 1"),
    ):
        ratios = [one / other for one, other in zip(seconds[over], seconds[under], strict=True)]
        print(ratio_line(title, ratios, aim))


def _run(data: str) -> Run:
    run = load_settings(preset="probe", assignments=[f"data={data}"]).run
    return resolved(run, {"vocabulary": probe_of(run.data).vocabulary})


_made = 0


def _seconds_of_a_batch(run: Run) -> float:
    global _made
    _made += 1
    began = time.perf_counter()
    training_examples(probe_of(run.data), seed=0, step=_made, members=range(run.training.batch_size))
    return time.perf_counter() - began


def _stepping(run: Run, workload: Workload) -> Callable[[], float]:
    execution = Execution(device="cpu", precision="float32", compile="off", threads=1)
    machine, _ = resolve_machine(execution, run, local_rank=0, world_size=1)
    prepare_process(machine)
    return TimedArm(run, machine, workload).step


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
