"""What two processes would exchange in one step on GPUs, traced on a device that does not exist, with torch's process
group that connects nobody: of every sum its device, type and size, and every operation on the way. Numbers are read one
step late, as on a GPU.

    python tests/fake_cuda/exchange_placement.py LIBRARY

The order of the buckets is given: agreeing on it reads numbers, of which there are none here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from imaginary import load

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
SEQUENCES, MICRO_BATCH_SIZE = 6, 2
ARMS = ("trained", "frozen_half", "frozen_embedding", "frozen_orthogonal_repaired")


def main() -> None:
    load(sys.argv[1])
    connect_nobody()
    print(json.dumps({arm: traced(arm) for arm in ARMS}))


def connect_nobody() -> None:
    """The process group of two that torch has for tests, and that says of itself to be NCCL's."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    dist.get_backend = lambda: "nccl"


def agreed_exchange() -> Any:
    """The exchange, without agreeing on the order of the buckets."""
    from oelm.training.exchange import GradientExchange, _buckets

    class Agreed(GradientExchange):
        def _agreed(self) -> list[list[int]]:
            return _buckets(self._parameters, self._complete)

    return Agreed


def traced(arm: str) -> dict[str, Any]:
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch._subclasses.fake_tensor import FakeTensorMode

    from oelm.model.transformer import GPT
    from oelm.training import loop
    from oelm.training.assembly import with_optimizer
    from oelm.training.device import Machine
    from oelm.training.distributed import World
    from oelm.training.late import LaunchedStep, StepNumbers
    from oelm.training.next_token import NextToken
    from operations import Operations
    from small_runs import small_run

    sums: list[tuple[str, str, int]] = []
    real = dist.all_reduce

    def noted(numbers: torch.Tensor, **options: Any) -> Any:
        sums.append((str(numbers.device), str(numbers.dtype), numbers.numel()))
        return real(numbers, **options)

    class OfTheLastStep(agreed_exchange()):  # type: ignore[misc]
        def begin(self, step: int) -> None:
            del sums[:]
            super().begin(step)

    run, world = small_run(arm, batch_size=SEQUENCES), World(rank=0, size=2)
    tokens = np.arange(2000, dtype=np.uint16) % run.model.vocabulary
    machine = Machine("cuda:0", "bfloat16", False, 1, MICRO_BATCH_SIZE)
    torch.Tensor.pin_memory = lambda self, *given: self
    LaunchedStep.read = lambda launched: StepNumbers(1.0, 0.0, 1.0, 0.1)
    dist.all_reduce, loop.GradientExchange = noted, OfTheLastStep
    with FakeTensorMode(allow_non_fake_inputs=True), Operations() as operations:
        with torch.device("cuda"):
            gpt = GPT(run.model)
        objective = NextToken(gpt, run, train=tokens, held_out=tokens, machine=machine, world=world)
        objective, optimizer, schedule = with_optimizer(objective, run)
        steps = loop.optimization_steps(
            objective, optimizer, run, schedule=schedule, machine=machine, world=world, acts_after=lambda step: False
        )
        first = next(steps)  # the second is under way
    dist.all_reduce = real
    state = [value for each in optimizer.state.values() for value in each.values()]
    return {
        "read": first.step,
        "sums": sums,
        "moving": sum(p.numel() for group in optimizer.param_groups for p in group["params"] if p.requires_grad),
        "rows": min(run.model.vocabulary, SEQUENCES * run.model.seq_len) * run.model.d_model,
        "moments on": sorted({str(value.device) for value in state}),
        "waiting": world.attendance.waiting,
        "operations": sorted(operations.seen),
    }


if __name__ == "__main__":
    main()
