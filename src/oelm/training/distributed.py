"""The processes of one run: who takes which part, what they add up, and what is said when one is gone. torchrun starts
them.

No wrapper around the model: `World.add_up` adds up whatever has a gradient at an update, so a weight that thaws later
is synchronised from then on. Every process has a part of the batch, so all have gradients of the same weights.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from oelm.errors import UserError
from oelm.exhaustion import what_ran_out, what_the_gpu_reported
from oelm.ownership import HEARTBEAT_SECONDS, STALE_SECONDS, START_VARIABLE
from oelm.training.attendance import Attendance

ABORT_SECONDS = 10.0
BUCKET_ELEMENTS = 4 * 2**20
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
        """Around whatever all processes do together, and wait for."""
        with self.explained(), self.attendance.waits():
            yield

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Backends say in many ways that a process is gone."""
        try:
            yield
        except RuntimeError as error:
            if what_ran_out(error) is not None or what_the_gpu_reported(error) is not None:
                raise  # this process's own
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
            summed = numbers.to(collective_device())
            dist.all_reduce(summed)
            summed = summed.cpu()
        self.attendance.settled()
        return summed

    def launched(self) -> None:
        """After sums that the device has yet to make: until a number is read from it, this process may be waiting for
        others wherever it is.
        """
        if collective_device() != "cpu":
            self.attendance.launched()

    def add_up(self, gradients: list[Tensor]) -> None:
        """Over all processes, in place; small ones are sent together."""
        if self.size == 1:
            return
        with self.together():
            for bucket in _buckets(gradients):
                flat = bucket[0].view(-1) if len(bucket) == 1 else torch.cat([each.view(-1) for each in bucket])
                dist.all_reduce(flat)
                if len(bucket) > 1:
                    parts = flat.split([each.numel() for each in bucket])
                    torch._foreach_copy_([each.view(-1) for each in bucket], list(parts))

    def least(self, number: int) -> int:
        """The smallest of what the processes say."""
        if self.size == 1:
            return number
        with self.together():
            found = torch.tensor([number], device=collective_device())
            dist.all_reduce(found, op=dist.ReduceOp.MIN)
            return int(found)

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
        buffer = buffer.to(collective_device())
        with self.together():
            dist.broadcast(buffer, src=0)
        return bytes(buffer.cpu().numpy()).decode()


def _buckets(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours together, up to a size; what is larger is alone, and needs no copy."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        if bucket and sum(each.numel() for each in bucket) + gradient.numel() > BUCKET_ELEMENTS:
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket


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
def joined(world: World, *, device: str) -> Iterator[None]:
    """The processes connected for the block; a group that the caller has already made is used and left alone."""
    if world.size == 1 or dist.is_initialized():
        yield
        return
    _refuse_a_shared_store()
    on_gpu = torch.device(device).type == "cuda"
    # With its device known, NCCL connects now and not inside the first sum, where nobody would know whom to wait for.
    place = torch.device(device) if on_gpu else None
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=TIMEOUT, device_id=place)
    try:
        yield
    except BaseException:
        _leave_group(aborting=on_gpu)
        raise
    _leave_group(aborting=False)


def _leave_group(*, aborting: bool) -> None:
    """After an error, sums may be under way that no other process takes part in: NCCL's are given up, because ending
    the group in order waits for them. What does not even come back from that ends with the process.
    """
    if not aborting:
        dist.destroy_process_group()
        return
    giving_up = threading.Thread(target=_abort, name="abort", daemon=True)
    giving_up.start()
    giving_up.join(ABORT_SECONDS)
    if giving_up.is_alive():
        end = threading.Timer(ABORT_SECONDS, os._exit, (OtherProcessGone.exit_code,))  # time for the error to be shown
        end.daemon = True
        end.start()


def _abort() -> None:
    with contextlib.suppress(Exception):  # there is an error already, and it is the one to show
        dist.distributed_c10d._abort_process_group()


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


def collective_device() -> str:
    return "cuda" if dist.get_backend() == "nccl" else "cpu"
