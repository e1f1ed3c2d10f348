"""What two processes would exchange in one step on GPUs, traced on a device that does not exist, with torch's process
group that connects nobody: of every sum its device, type and size, and every operation on the way.

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
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    print(json.dumps({arm: traced(arm) for arm in ARMS}))


def traced(arm: str) -> dict[str, Any]:
    import numpy as np
    import torch
    import torch.distributed as dist
    from torch._subclasses.fake_tensor import FakeTensorMode

    from oelm.model.transformer import GPT
    from oelm.training.assembly import with_optimizer
    from oelm.training.device import Machine
    from oelm.training.distributed import World
    from oelm.training.exchange import GradientExchange, _buckets
    from oelm.training.loop import accumulate_gradients
    from oelm.training.next_token import NextToken
    from operations import Operations
    from small_runs import small_run

    class Agreed(GradientExchange):
        def _agreed(self) -> list[list[int]]:
            return _buckets(self._parameters, self._complete)

    sums: list[tuple[str, str, int]] = []
    real = dist.all_reduce

    def noted(numbers: torch.Tensor, **options: Any) -> Any:
        sums.append((str(numbers.device), str(numbers.dtype), numbers.numel()))
        return real(numbers, **options)

    run, world = small_run(arm, batch_size=SEQUENCES), World(rank=0, size=2)
    tokens = np.arange(2000, dtype=np.uint16) % run.model.vocabulary
    machine = Machine("cuda:0", "bfloat16", False, 1, MICRO_BATCH_SIZE)
    torch.Tensor.pin_memory = lambda self, *given: self
    dist.all_reduce, dist.get_backend = noted, lambda: "nccl"
    with FakeTensorMode(allow_non_fake_inputs=True), Operations() as operations:
        with torch.device("cuda"):
            gpt = GPT(run.model)
        objective = NextToken(gpt, run, train=tokens, held_out=tokens, machine=machine, world=world)
        objective, optimizer, schedule = with_optimizer(objective, run)
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        exchange = Agreed(world, parameters, objective, machine)
        for step in (1, 2):
            del sums[:]
            schedule.apply(gpt, step)
            exchange.begin(step)
            accumulate_gradients(objective, run, step, machine=machine, world=world, before_last=exchange.open)
            exchange.finish()
            moving = sum(p.numel() for p in parameters if p.requires_grad)
            devices = sorted({str(p.grad.device) for p in parameters if p.grad is not None})
            optimizer.step()
            optimizer.zero_grad()
    dist.all_reduce = real
    return {
        "sums": sums,
        "moving": moving,
        "rows": min(run.model.vocabulary, SEQUENCES * run.model.seq_len) * run.model.d_model,
        "gradients on": devices,
        "waiting": world.attendance.waiting,
        "operations": sorted(operations.seen),
    }


if __name__ == "__main__":
    main()
