"""How many sequences a GPU computes at once: as many as its free memory is expected to hold, in equal parts of a step.

The result of a step does not depend on it but in its last bits, so a resumed run keeps what it began with.
"""

from __future__ import annotations

import torch

from oelm.config import GptRun, ResolvedRun
from oelm.exhaustion import size
from oelm.footprint import Step, peak_parts
from oelm.training.region import chunk_rows

TOKENS_AT_ONCE = {"cpu": 8 * 512, "cuda": 32 * 1024}  # more are not faster
ROOM = 0.9  # of the free memory: the allocator and the libraries need some of it


def micro_batch(
    run: ResolvedRun, *, device: str, precision: str, compiled: bool, world_size: int
) -> tuple[int, str | None]:
    """The size of a micro-batch, and why; on a processor, where memory is seldom short, without a word."""
    kind = torch.device(device).type
    share = -(-run.training.batch_size // world_size)
    most = max(1, TOKENS_AT_ONCE.get(kind, TOKENS_AT_ONCE["cpu"]) // run.model.seq_len)
    if kind != "cuda":
        return min(most, share), None
    free, fewest = _free_bytes(device), -(-share // most)
    if free is None or not isinstance(run, GptRun):
        examples = -(-share // fewest)
        return examples, f"micro-batch {examples}: the memory of the GPU was not looked at"
    for wanted in range(fewest, share + 1):
        examples = -(-share // wanted)
        found = peak(run, examples=examples, world_size=world_size, precision=precision, compiled=compiled)
        needed = sum(found.values())
        if needed <= ROOM * free or examples == 1:
            break
    parts = -(-share // examples)  # what is made of it: 5 of 10 in twos, also where 6 were tried
    many = f"{parts} of them in a step" if parts > 1 else "the whole step"
    return (
        examples,
        f"micro-batch {examples}: {many}, about {size(needed)} of the {size(free)} that are free on the GPU",
    )


def micro_batches(mine: range, size: int, kind: str) -> list[range]:
    """This process's part of a step, in pieces of at most `size`. On a GPU they differ by one at most; on a processor
    all but the last have this size.
    """
    if kind != "cuda":
        return [mine[first : first + size] for first in range(0, len(mine), size)]
    parts = -(-len(mine) // size)
    return [mine[number * len(mine) // parts : (number + 1) * len(mine) // parts] for number in range(parts)]


def _free_bytes(device: str) -> int | None:
    try:
        return torch.cuda.mem_get_info(device)[0]
    except (RuntimeError, AssertionError):  # what drives the device does not say
        return None


def peak(run: GptRun, *, examples: int, world_size: int, precision: str, compiled: bool) -> dict[str, int]:
    """Bytes at the peak of a step of one process, by what they are for, with so many of its share at once."""
    share = -(-run.training.batch_size // world_size)
    read = min(run.model.vocabulary, run.training.batch_size * run.model.seq_len)  # rows of the embedding, at most
    products: torch.dtype = getattr(torch, precision)
    weights = torch.promote_types(products, torch.float32)
    rows = chunk_rows(examples * run.model.seq_len, run.model.vocabulary, products, compiled=compiled)
    step = Step(
        examples=examples,
        several=share > examples,
        product_bytes=products.itemsize,
        weight_bytes=weights.itemsize,
        chunk_rows=rows,
        compiled=compiled,
        exchanged_rows=read if world_size > 1 else None,
    )
    return peak_parts(run.model, step)
