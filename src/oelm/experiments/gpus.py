"""The GPUs of a shared machine: which are free, and which ones a study takes. gpu_queries.py asks who uses which."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from oelm.errors import UserError
from oelm.experiments.gpu_queries import FREE_MIB, TOOL, Gpu, gpus_here
from oelm.system import PROC, visible_gpus


@dataclass(frozen=True)
class Chosen:
    """A GPU to run on: `number` stays the same whichever others are busy, `name` is for CUDA_VISIBLE_DEVICES.

    `by_bus`: its name is a number in the order of the bus, or a UUID; otherwise it is the environment's own.
    """

    number: int
    name: str
    by_bus: bool = True


def without(gpu: Gpu, ours: set[int]) -> Gpu:
    """The GPU as it would be without our own runs, their workers included: these are accounted for elsewhere."""
    own = [process for process in gpu.processes if ours & _with_ancestors(process.pid)]
    others = tuple(process for process in gpu.processes if process not in own)
    used = max(0, gpu.used_mib - sum(process.used_mib for process in own))
    # What a context holds beyond its process's own share goes with the process.
    return replace(gpu, processes=others, used_mib=0 if own and not others and used <= 2 * FREE_MIB else used)


def _with_ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError, ValueError, IndexError):
        while pid > 1 and pid not in found:
            found.add(pid)
            pid = int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    return found


# ---- Which ones to take --------------------------------------------------------------------------------------------


def gpus_to_use(
    wanted: str | None, *, most: int | None = None, ours: Iterable[int] = (), say: Callable[[str], None]
) -> list[Chosen]:
    """The GPUs a study may use: those asked for, those CUDA_VISIBLE_DEVICES names, otherwise the free ones.

    Says which are taken, and which are not and why. Empty: this machine has none.
    """
    names = visible_gpus()
    if wanted is None and names is not None:
        listed = [Chosen(number, name, by_bus=False) for number, name in enumerate(names)]
        listed = listed[: _at_most(most, len(names))]
        for gpu in listed:
            say(f"gpu {gpu.name}: used, listed in CUDA_VISIBLE_DEVICES")
        return listed
    own = set(ours)
    here = [without(gpu, own) for gpu in gpus_here()]
    usable = _asked_for(wanted, here) if wanted is not None else [gpu for gpu in here if gpu.why_busy is None]
    if here and not usable:
        reasons = "; ".join(f"{gpu.index}: {gpu.why_busy}" for gpu in here)
        raise UserError(f"every GPU is busy ({reasons}); wait, or choose some anyway with --gpus")
    taken = usable[: _at_most(most, len(usable))]
    for each in here:
        say(f"gpu {each.index}: {_decision(each, taken=each in taken, usable=each in usable)}")
    divided = any(gpu.is_slice for gpu in taken)  # slices have no numbers, and CUDA does not mix the two
    return [Chosen(here.index(gpu), gpu.uuid if divided else gpu.index) for gpu in taken]


def _at_most(most: int | None, count: int) -> int | None:
    if most is not None and 0 < count < most:
        raise UserError(f"--slots {most}: only {count} GPUs are available")
    return most


def _decision(gpu: Gpu, *, taken: bool, usable: bool) -> str:
    if taken:
        return f"used, although busy: {gpu.why_busy}" if gpu.why_busy else f"used, free according to {gpu.source}"
    if usable:
        return "skipped, more than the requested slots"
    return f"skipped, busy: {gpu.why_busy}" if gpu.why_busy else "skipped, not requested"


def visible_alone(names: list[str], *, by_bus: bool = True) -> dict[str, str]:
    """What a process that shall see these GPUs alone has in its environment; `by_bus` as Chosen says it.

    Without names it sees none, whatever `auto` would choose.
    """
    order = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if by_bus else {}
    return order | {"CUDA_VISIBLE_DEVICES": ",".join(names)}


def _asked_for(wanted: str, here: list[Gpu]) -> list[Gpu]:
    """By their numbers, or by UUIDs or how those begin."""
    named = [_named(name, wanted, here) for name in dict.fromkeys(part.strip() for part in wanted.split(","))]
    return list(dict.fromkeys(named))


def _named(name: str, wanted: str, here: list[Gpu]) -> Gpu:
    by_index = {gpu.index: gpu for gpu in here}
    if name in by_index:
        return by_index[name]
    beginning = [gpu for gpu in here if gpu.uuid.startswith(name)] if name.startswith(("GPU-", "MIG-")) else []
    if len(beginning) == 1:
        return beginning[0]
    if beginning:
        raise UserError(f"--gpus {wanted}: {name!r} begins the UUIDs of {len(beginning)} GPUs; give more of it")
    shown = f"has {', '.join(by_index)}" if by_index else f"shows none ({TOOL} lists them)"
    raise UserError(f"--gpus {wanted}: {name!r} is not a GPU of this machine, which {shown}")
