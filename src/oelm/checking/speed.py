"""The time of a training step, ours and a plain GPT's by turns, in a process of their own."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from oelm.accounting import training_flops_per_token
from oelm.checking.contenders import asked
from oelm.checking.outcomes import compiled_on_a_gpu
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
    """The plain GPT has all logits of a micro-batch at once: where it does not fit, both take smaller ones."""
    run, machine, workload = asked(request, compile=compiled_on_a_gpu(request["kind"]))
    while True:
        try:
            return _answer(run, machine, workload, _measured(run, machine, workload, request["seconds"]))
        except torch.OutOfMemoryError:
            if machine.micro_batch_size == 1:
                raise
        machine = replace(machine, micro_batch_size=-(-machine.micro_batch_size // 2))
        gc.collect()
        torch.cuda.empty_cache()


def _measured(run: GptRun, machine: Machine, workload: Workload, seconds: float) -> dict[str, list[float]]:
    """Seconds of steps, by turns."""
    contenders: dict[str, Build] = {
        OURS: lambda: _warm(TimedArm(run, machine, workload).step),
        PLAIN: lambda: _warm(PlainSteps(run, machine, compiled=machine.compile).step),
    }
    times: dict[str, list[float]] = {OURS: [], PLAIN: []}
    until = time.monotonic() + seconds
    for block in blocks_of(contenders, blocks=MOST_BLOCKS, steps=STEPS_A_BLOCK, may_rebuild=False):
        for name, taken in block.seconds.items():
            times[name].append(taken)
        if len(times[OURS]) >= LEAST_BLOCKS and time.monotonic() > until:
            break
    return times


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
