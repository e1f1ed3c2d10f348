"""The time of a training step, ours and a plain GPT's by turns, in a process of their own."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch

from oelm.accounting import training_flops_per_token
from oelm.checking.contenders import asked
from oelm.checking.plain_gpt import PlainSteps
from oelm.config import GptRun
from oelm.timing.blocks import Build, Step, blocks_of
from oelm.timing.ratios import interval, paired
from oelm.timing.workload import TimedArm, Workload
from oelm.training.device import Machine

OURS, PLAIN = "ours", "plain"
WARMUP_STEPS = 3  # the first compiles, the second makes room for the moments, the third finds everything in place
MOST_BLOCKS, STEPS_A_BLOCK = 40, 2
LEAST_BLOCKS = 4


def speed(request: dict[str, Any]) -> dict[str, Any]:
    """Compiled on a GPU, where every run that lasts is; on a processor both are eager, to spare the minutes."""
    run, machine, workload = asked(request, compile="on" if request["kind"] == "cuda" else "off")
    contenders: dict[str, Build] = {
        OURS: lambda: _warm(TimedArm(run, machine, workload).step),
        PLAIN: lambda: _warm(PlainSteps(run, machine, compiled=machine.compile).step),
    }
    times: dict[str, list[float]] = {OURS: [], PLAIN: []}
    until = time.monotonic() + request["seconds"]
    for block in blocks_of(contenders, blocks=MOST_BLOCKS, steps=STEPS_A_BLOCK, may_rebuild=False):
        for name, seconds in block.seconds.items():
            times[name].append(seconds)
        if len(times[OURS]) >= LEAST_BLOCKS and time.monotonic() > until:
            break
    return _answer(run, machine, workload, times)


def _warm(step: Step) -> Step:
    for _ in range(WARMUP_STEPS):
        step()
    return step


def _answer(run: GptRun, machine: Machine, workload: Workload, times: dict[str, list[float]]) -> dict[str, Any]:
    seconds, tokens = median(times[OURS]), run.training.batch_size * run.model.seq_len
    middle, low, high = interval(paired(times[OURS], times[PLAIN]))
    return {
        "seconds_per_step": seconds,
        "plain_seconds_per_step": median(times[PLAIN]),
        "tokens_per_second": tokens / seconds,
        "flops_per_second": tokens * training_flops_per_token(run.model) / seconds,
        "ratio": middle,
        "ratio_low": low,
        "ratio_high": high,
        "blocks": len(times[OURS]),
        "tokens_per_step": tokens,
        "accelerator": torch.cuda.get_device_name(machine.device) if machine.kind == "cuda" else None,
        **machine.as_json(),
    }
