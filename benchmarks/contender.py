"""One contender in a process of its own: takes a training step for every line it reads, answers with its seconds.

A process each, so that no contender profits from another's allocator settings, and peak memory is its own.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence

import torch

import oelm  # noqa: F401 - sets how OpenMP threads wait, for every contender alike
from oelm.core.config import Execution, Run, resolved
from oelm.core.settings import load_settings
from oelm.execution.timing.blocks import Step
from plain_gpt import PlainGPT


def sized(sizes: dict[str, int], arm: str = "trained", assignments: Sequence[str] = ()) -> Run:
    run = load_settings(preset="medium-512", arm=arm, assignments=list(assignments)).run
    model = run.model.model_copy(update={"vocabulary": sizes["vocabulary"]})
    training = run.training.model_copy(update={"batch_size": sizes["batch_size"]})
    return resolved(run.model_copy(update={"model": model, "training": training}))


def random_tokens(run: Run) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    shape = (run.training.batch_size, run.model.seq_len + 1)
    return torch.randint(0, run.model.vocabulary, shape, generator=generator)


def plain(sizes: dict[str, int], *, autocast: bool, compiled: bool) -> Step:
    model = sized(sizes).model
    gpt = PlainGPT(model.vocabulary, model.seq_len, model.d_model, model.num_layers, model.num_heads, model.d_ff)
    if compiled:
        gpt.compile(dynamic=False)
    return _stepping(gpt, lambda rows: gpt(rows[:, :-1], rows[:, 1:]), sized(sizes), autocast=autocast)


def huggingface(sizes: dict[str, int]) -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = sized(sizes).model
    gpt = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=model.vocabulary, n_positions=model.seq_len, n_embd=model.d_model, n_layer=model.num_layers,
            n_head=model.num_heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        )
    )  # fmt: skip
    return _stepping(gpt, lambda rows: gpt(rows[:, :-1], labels=rows[:, :-1]).loss, sized(sizes), autocast=False)


def _stepping(gpt: torch.nn.Module, loss_of: Callable, run: Run, *, autocast: bool) -> Step:
    optimizer = torch.optim.AdamW(gpt.parameters(), lr=1e-5, weight_decay=0.1, fused=True)
    rows = random_tokens(run)

    def step() -> float:
        began = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = loss_of(rows)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - began

    return step


def ours(sizes: dict[str, int], arm: str, *, precision: str, compiled: str, assignments: Sequence[str] = ()) -> Step:
    """The training step of `oelm train`, on drawn tokens."""
    from oelm.execution.timing.workload import TimedArm, drawn_tokens
    from oelm.run.training.device import prepare_process, resolve_machine

    run = sized(sizes, arm, assignments)
    execution = Execution(device="cpu", precision=precision, compile=compiled)
    machine, _ = resolve_machine(execution, run, local_rank=0, world_size=1)
    prepare_process(machine)
    return TimedArm(run, machine, drawn_tokens(run, vocabulary=sizes["vocabulary"], seq_len=run.model.seq_len)).step


CONTENDERS: dict[str, Callable[[dict[str, int]], Step]] = {
    "plain eager float32": lambda sizes: plain(sizes, autocast=False, compiled=False),
    "plain bfloat16 compiled": lambda sizes: plain(sizes, autocast=True, compiled=True),
    "plain float32 compiled": lambda sizes: plain(sizes, autocast=False, compiled=True),
    "huggingface eager float32": huggingface,
    "oelm": lambda sizes: ours(sizes, "trained", precision="auto", compiled="on"),
    "oelm float32": lambda sizes: ours(sizes, "trained", precision="float32", compiled="on"),
    "oelm float32 eager": lambda sizes: ours(sizes, "trained", precision="float32", compiled="off"),
}


def peak_bytes() -> int:
    """The kernel's high-water mark of this process; getrusage carries the parent's over."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    step = CONTENDERS[sys.argv[1]](json.loads(sys.argv[2]))
    for _ in sys.stdin:
        print(json.dumps({"seconds": step(), "peak_bytes": peak_bytes()}), flush=True)
