"""The processes of one run: who takes which part, what they add up, and what is said when one is gone. torchrun starts
them.

No wrapper around the model: `World.add_up` adds up whatever has a gradient at an update, so a weight that thaws later
is synchronised from then on. Every process has a part of the batch, so all have gradients of the same weights.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from oelm.machine.errors import UserError
from oelm.machine.exhaustion import what_ran_out, what_the_gpu_reported
from oelm.storage.ownership import HEARTBEAT_SECONDS, STALE_SECONDS, START_VARIABLE, Process

ABORT_SECONDS = 10.0
BUCKET_ELEMENTS = 4 * 2**20
TIMEOUT = datetime.timedelta(minutes=30)  # of what comes before the first step
LIMIT_SECONDS = 600.0  # of a run that says nothing else
SLOWEST_DISK = 10 * 2**20  # bytes a second, of a save
MOST_BYTES = 1024  # of what a process says of itself


class OtherProcessGone(UserError):
    """A process of this run died, left with an error of its own, or hangs. The first of those that are left tells."""

    exit_code = 1

    def __init__(self, line: str, *, speaks: bool) -> None:
        super().__init__(line)
        self.concerns_one_process = self.speaks = speaks


# ---- Who has come to where all wait ----------------------------------------------------------------------------------


class RollCall:
    """Of one start of a group. All processes make it at the same time."""

    def __init__(self, *, rank: int, size: int, limit_seconds: float) -> None:
        self._rank, self._limit, self._count, self._began = rank, limit_seconds, 0, time.monotonic()
        # A connection of its own: that of the process group may be held up with it.
        self._store = dist.TCPStore(  # type: ignore[attr-defined]  # documented, and not in its list of exports
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=False,
            wait_for_workers=False,
            timeout=datetime.timedelta(seconds=limit_seconds),
        )
        self._processes = list(_every_process(size))

    def _key(self, rank: int) -> str:
        """Of this start alone: torchrun keeps one store over all its restarts."""
        first = self._processes[0]
        return f"oelm/{first.pid}-{first.pid_started}/{rank}"

    def here(self) -> None:
        """Before every wait."""
        self._count, self._began = self._count + 1, time.monotonic()
        self._store.set(self._key(self._rank), str(self._count))

    def what_happened(self, reason: str) -> tuple[str, bool]:
        """After a wait that failed: one line, and whether it is for this process to tell, the first of those that are
        left. A process of this host that hangs is killed: it may hold the run's lock.
        """
        others = [rank for rank in range(len(self._processes)) if rank != self._rank]
        dead = [rank for rank in others if self._processes[rank].is_alive_here() is False]
        absent = [] if time.monotonic() - self._began < self._limit else self._absent(others)
        told = [f"{self._named(rank)} has ended" for rank in dead]
        for rank in absent:
            if rank not in dead:
                told.append(f"{self._named(rank)} did not respond for {self._limit:g} s (execution.step_limit_seconds)")
                if self._processes[rank].is_alive_here():
                    os.kill(self._processes[rank].pid, signal.SIGKILL)
        left = {self._rank, *others} - {*dead, *absent}
        who = ", ".join(told) or f"rank {self._rank}: another process of this run has left or hangs ({reason})"
        return who, not told or self._rank == min(left)

    def _named(self, rank: int) -> str:
        return f"rank {rank} (host {self._processes[rank].host}, pid {self._processes[rank].pid})"

    def _absent(self, others: list[int]) -> list[int]:
        """Those that have not come to this wait."""
        with contextlib.suppress(RuntimeError):  # where rank 0 keeps the store, it hangs with it
            keys = {rank: self._key(rank) for rank in others}
            return [
                rank
                for rank, key in keys.items()
                if not self._store.check([key]) or int(self._store.get(key)) < self._count
            ]
        return [rank for rank in others if rank == 0]


def _every_process(size: int) -> Iterator[Process]:
    """In the order of their ranks, as each says itself."""
    said = torch.zeros(MOST_BYTES, dtype=torch.uint8)
    mine = json.dumps(Process.current().__dict__).encode()
    said[: len(mine)] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
    told = [torch.empty_like(said) for _ in range(size)]
    dist.all_gather(told, said)
    for each in told:
        yield Process.stored(json.loads(bytes(each.numpy()).rstrip(b"\0")))


# ---- The processes ---------------------------------------------------------------------------------------------------


class Sharing(Protocol):
    """What a look at held-out data needs of the processes that share it."""

    def share(self, count: int) -> range: ...

    def sum(self, numbers: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class World:
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    limit_seconds: float = LIMIT_SECONDS
    # Where numbers and gradients are added up, and who has come there; None: wherever the caller's group does.
    numbers: Any = field(default=None, compare=False, repr=False)
    gradients: Any = field(default=None, compare=False, repr=False)
    roll_call: RollCall | None = field(default=None, compare=False, repr=False)

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def share(self, count: int) -> range:
        """This process's part of 0..count-1; parts differ by one at most."""
        return range(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Around whatever all processes do together, and wait for. Backends say in many ways that a process is gone."""
        try:
            if self.roll_call is not None:
                self.roll_call.here()
            yield
        except RuntimeError as error:
            if what_ran_out(error) is not None or what_the_gpu_reported(error) is not None:
                raise  # this process's own
            reason = str(error).strip().splitlines()[0]
            who, speaks = f"rank {self.rank}: another process of this run has left or hangs ({reason})", True
            if self.roll_call is not None:
                who, speaks = self.roll_call.what_happened(reason)
            raise OtherProcessGone(
                f"{who}; all processes stop, their output or that of torchrun may show the cause; "
                "the same command resumes",
                speaks=speaks,
            ) from error

    def sum(self, numbers: Tensor) -> Tensor:
        """A few numbers on the CPU added up over all processes."""
        if self.size > 1:
            numbers = numbers.clone()
            with self.together():
                dist.all_reduce(numbers, group=self.numbers)
        return numbers

    def add_up(self, gradients: list[Tensor]) -> None:
        """Over all processes, in place; small ones are sent together."""
        if self.size == 1:
            return
        with self.together():
            for bucket in _buckets(gradients):
                flat = bucket[0].view(-1) if len(bucket) == 1 else torch.cat([each.view(-1) for each in bucket])
                dist.all_reduce(flat, group=self.gradients)
                if len(bucket) > 1:
                    parts = flat.split([each.numel() for each in bucket])
                    torch._foreach_copy_([each.view(-1) for each in bucket], list(parts))

    def barrier(self, *, saved_bytes: int = 0) -> None:
        """All processes are here; one of them may have written so much meanwhile."""
        if self.size > 1:
            patience = datetime.timedelta(seconds=self.limit_seconds + saved_bytes / SLOWEST_DISK)
            with self.together():
                dist.monitored_barrier(self.numbers, timeout=patience)

    # -- before the first step, where processes may wait long for each other ------------------------------------------

    def meet(self) -> None:
        if self.size > 1:
            with self.together():
                dist.barrier()

    def least(self, number: int) -> int:
        """The smallest of what the processes say."""
        if self.size == 1:
            return number
        with self.together():
            found = torch.tensor([number])
            dist.all_reduce(found, op=dist.ReduceOp.MIN)
            return int(found)

    def broadcast_text(self, text: str = "") -> str:
        """What rank 0 says, for all; the others say nothing."""
        if self.size == 1:
            return text
        content = text.encode()
        with self.together():
            length = torch.tensor([len(content)])
            dist.broadcast(length, src=0)
            buffer = torch.zeros(int(length), dtype=torch.uint8)
            if content:
                buffer[:] = torch.frombuffer(bytearray(content), dtype=torch.uint8)
            dist.broadcast(buffer, src=0)
        return bytes(buffer.numpy()).decode()


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
def joined(world: World, *, device: str, limit_seconds: float | None = None) -> Iterator[World]:
    """The processes connected for the block; a group that the caller has already made is used and left alone."""
    if world.size == 1 or dist.is_initialized():
        yield world
        return
    # torchrun keeps one store over all its restarts: processes started again would find the dead ones' addresses in it
    # and wait for them.
    restarts, shared = (os.environ.get(f"TORCHELASTIC_{name}") for name in ("MAX_RESTARTS", "USE_AGENT_STORE"))
    if shared == "True" and restarts not in (None, "0"):
        raise UserError(
            "torchrun --max-restarts: also set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in the environment of torchrun, or "
            "restarted processes will wait for the ones that died"
        )
    dist.init_process_group("gloo", timeout=TIMEOUT)
    on_gpu = torch.device(device).type == "cuda"
    try:
        yield _connected(world, device if on_gpu else None, limit_seconds or LIMIT_SECONDS)
    except BaseException:
        _leave_group(aborting=on_gpu)
        raise
    _leave_group(aborting=False)


def _connected(world: World, gpu: str | None, limit_seconds: float) -> World:
    limit = datetime.timedelta(seconds=limit_seconds)
    numbers = gradients = dist.new_group(backend="gloo", timeout=limit)
    if gpu is not None:  # with its device known, NCCL connects now, where all wait for it
        gradients = dist.new_group(backend="nccl", timeout=limit, device_id=torch.device(gpu))
    return replace(
        world,
        limit_seconds=limit_seconds,
        numbers=numbers,
        gradients=gradients,
        roll_call=RollCall(rank=world.rank, size=world.size, limit_seconds=limit_seconds),
    )


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
