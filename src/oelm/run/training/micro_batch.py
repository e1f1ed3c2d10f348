"""How many sequences are computed at once, in equal parts of a step.

The result of a step does not depend on it but in its last bits, so a resumed run keeps what it began with.
"""

from __future__ import annotations

from oelm.core.config import ResolvedRun

TOKENS_AT_ONCE = {"cpu": 8 * 512, "cuda": 32 * 1024}  # more are not faster


def micro_batch(run: ResolvedRun, *, kind: str, world_size: int) -> int:
    """As many as are worthwhile; where the memory of a GPU has no room for them, the run starts with fewer (run.py)."""
    most = max(1, TOKENS_AT_ONCE.get(kind, TOKENS_AT_ONCE["cpu"]) // run.model.seq_len)
    share = -(-run.training.batch_size // world_size)
    return min(most, share) if kind != "cuda" else -(-share // -(-share // most))


def micro_batches(mine: range, size: int, kind: str) -> list[range]:
    """This process's part of a step, in pieces of at most `size`. On a GPU they differ by one at most; on a processor
    all but the last have this size.
    """
    if kind != "cuda":
        return [mine[first : first + size] for first in range(0, len(mine), size)]
    parts = -(-len(mine) // size)
    return [mine[number * len(mine) // parts : (number + 1) * len(mine) // parts] for number in range(parts)]
