"""Data parallelism as arithmetic: every process sums its gradients, then all sums are added. torchrun starts it.

No wrapper around the model: whatever has a gradient at this step is added up, so a weight that thaws later is
synchronised from then on.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from oelm.errors import UserError
from oelm.exhaustion import what_ran_out
from oelm.ownership import HEARTBEAT_SECONDS, STALE_SECONDS, START_VARIABLE
from oelm.training.attendance import Attendance

BUCKET_ELEMENTS = 16 * 2**20
TIMEOUT = datetime.timedelta(minutes=30)  # a dead rank is seen at once, a hung one by its attendance


class OtherProcessGone(UserError):
    """A process of this run died, or left with an error of its own."""

    exit_code = 1
    concerns_one_process = True


class Sharing(Protocol):
    """What a look at held-out data needs of the processes that share it."""

    @property
    def attendance(self) -> Attendance: ...

    def share(self, count: int) -> range: ...

    def sum(self, numbers: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class World:
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    attendance: Attendance = field(default_factory=Attendance, compare=False, repr=False)

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def share(self, count: int) -> range:
        """This process's part of 0..count-1; parts differ by one at most."""
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Around whatever all processes do together: backends say in many ways that one is gone."""
        try:
            with self.attendance.waits():
                yield
        except RuntimeError as error:
            if what_ran_out(error) is not None:
                raise
            reason = str(error).strip().splitlines()[0]
            raise OtherProcessGone(
                f"rank {self.rank}: another process of this run has died; its output or that of torchrun "
                f"shows the cause; the same command resumes ({reason})"
            ) from error

    def sum(self, numbers: Tensor) -> Tensor:
        """A few numbers added up over all processes; in and out on the CPU."""
        if self.size == 1:
            return numbers
        with self.together():
            summed = numbers.to(_collective_device())
            dist.all_reduce(summed)
            return summed.cpu()

    def barrier(self) -> None:
        if self.size > 1:
            with self.together():
                dist.barrier()

    def broadcast_text(self, text: str = "") -> str:
        """What rank 0 says, for all; the others say nothing."""
        if self.size == 1:
            return text
        content = text.encode()
        length = self.sum(torch.tensor([len(content)], dtype=torch.int64))
        buffer = torch.zeros(int(length), dtype=torch.uint8)
        if self.is_main:
            buffer[:] = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else buffer
        buffer = buffer.to(_collective_device())
        with self.together():
            dist.broadcast(buffer, src=0)
        return bytes(buffer.cpu().numpy()).decode()


def world_from_environment() -> World:
    """What torchrun put into the environment; one process without it."""
    if "WORLD_SIZE" not in os.environ:
        return World()
    return World(
        rank=int(os.environ["RANK"]),
        size=int(os.environ["WORLD_SIZE"]),
        local_rank=int(os.environ.get("LOCAL_RANK", 0)),
    )


def patience_seconds() -> float:
    """How long to wait for the run directory. Where a run is started again by torchrun, by Slurm, or on Slurm by a
    controller, perhaps on another node, the process that was lost may look alive until its last heartbeat is stale.
    """
    counts = [os.environ.get(name, "0") for name in ("TORCHELASTIC_MAX_RESTARTS", "SLURM_RESTART_COUNT")]
    again = any(count not in ("", "0") for count in counts) or {START_VARIABLE, "SLURM_JOB_ID"} <= os.environ.keys()
    return STALE_SECONDS + HEARTBEAT_SECONDS if again else 0.0


@contextlib.contextmanager
def joined(world: World, *, device_kind: str) -> Iterator[None]:
    """The processes connected for the block; a group that the caller has already made is used and left alone."""
    if world.size == 1 or dist.is_initialized():
        yield
        return
    _refuse_a_shared_store()
    dist.init_process_group("nccl" if device_kind == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _refuse_a_shared_store() -> None:
    """torchrun keeps one store over all its restarts: processes started again would find the dead ones' addresses in it
    and wait for them.
    """
    restarts, shared = (os.environ.get(f"TORCHELASTIC_{name}") for name in ("MAX_RESTARTS", "USE_AGENT_STORE"))
    if shared == "True" and restarts not in (None, "0"):
        raise UserError(
            "torchrun --max-restarts: also set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in the environment of torchrun, or "
            "restarted processes will wait for the ones that died"
        )


def _collective_device() -> str:
    return "cuda" if dist.get_backend() == "nccl" else "cpu"


def sum_gradients(world: World, parameters: Iterable[Tensor]) -> None:
    """Add up the gradients of all processes, in a few large messages, all under way at once."""
    if world.size == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    pending = []
    with world.together():
        for bucket in _buckets(gradients):
            flat = bucket[0].view(-1) if len(bucket) == 1 else torch.cat([g.view(-1) for g in bucket])
            pending.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
        for bucket, flat, work in pending:
            work.wait()
            if len(bucket) > 1:
                parts = flat.split([g.numel() for g in bucket])
                torch._foreach_copy_([g.view(-1) for g in bucket], list(parts))
        if dist.get_backend() == "nccl":
            torch.cuda.synchronize()  # it waits here, where others know what for, and not where a loss is read next


def _buckets(gradients: list[Tensor]) -> list[list[Tensor]]:
    buckets: list[list[Tensor]] = []
    room = 0
    for gradient in gradients:
        if not buckets or gradient.numel() > room or gradient.dtype != buckets[-1][0].dtype:
            buckets.append([])
            room = BUCKET_ELEMENTS
        buckets[-1].append(gradient)
        room -= gradient.numel()
    return buckets
