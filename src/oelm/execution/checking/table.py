"""Every check as one row: its name, what it shows in both languages, what it needs, and the function that does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oelm.core.settings import written_out
from oelm.execution.checking import runs
from oelm.execution.checking.children import answer_of
from oelm.execution.checking.outcomes import CheckFailed, Here, Outcome
from oelm.machine.exhaustion import size
from oelm.machine.plurals import number_of
from oelm.machine.system import lacking_to_compile

# Compiled code sums in another order: a few roundings apart, each 6e-8 in float32 and 4e-3 in bfloat16, which a loss
# averages out and a gradient that nearly cancels does not. A wrong factor or a missing term is far beyond.
LOSS_TOLERANCES = {"float64": 1e-10, "float32": 1e-4, "bfloat16": 2e-2}
GRADIENT_TOLERANCES = {"float64": 1e-10, "float32": 1e-3, "bfloat16": 5e-2}

Need = Callable[[Here], str | None]


@dataclass(frozen=True)
class Check:
    """`lacks` says why the check does not apply here; None: it does."""

    name: str
    words: tuple[str, str]  # English, Chinese
    lacks: Need
    run: Callable[[Here], Outcome]


# ---- What a check needs --------------------------------------------------------------------------------------------


def _nothing(here: Here) -> str | None:
    return None


def _a_gpu(here: Here) -> str | None:
    return None if here.gpus else "there is no GPU"


def _two_gpus(here: Here) -> str | None:
    return _a_gpu(here) or (None if len(here.gpus) > 1 else "there is one free GPU, and it takes two")


def _two_devices(here: Here) -> str | None:
    """Any processor can run two processes; a GPU is for one."""
    return _two_gpus(here) if here.gpus else None


def _a_compiler(here: Here) -> str | None:
    lacking = lacking_to_compile(here.kind)
    return f"there is {lacking[0]}; {lacking[1]}" if lacking else None


# ---- What is done --------------------------------------------------------------------------------------------------


def _request(here: Here, **further: Any) -> dict[str, Any]:
    return {"kind": here.kind, "settings": written_out(here.measured), **further}


def _device(here: Here) -> Outcome:
    found = answer_of("device", _request(here), here=here)
    if not here.gpus:
        return Outcome("pass", f"torch {found['torch']} on the processor, {found['processor']}", found)
    seen = found["gpus"]
    if len(seen) != len(here.gpus):
        raise CheckFailed(
            f"torch {found['torch']} (CUDA {found['cuda'] or 'none'}) sees {number_of(len(seen), 'GPU')} of "
            f"{len(here.gpus)}; install a build of torch for this driver"
        )
    cards = ", ".join(f"{name} ({size(total)})" for name, total in zip(seen, found["memory_bytes"], strict=True))
    return Outcome("pass", f"torch {found['torch']} (CUDA {found['cuda']}) sees {cards}", found)


def _every_arm(here: Here) -> Outcome:
    taken = answer_of("arms", _request(here), here=here)
    failed, facts = taken["failed"], {"arms": len(taken["arms"])}
    if failed:
        first = next(iter(failed))
        return Outcome("fail", f"no step is possible: {', '.join(failed)} ({first}: {failed[first]})", facts)
    if taken["not_finite"]:
        return Outcome("fail", f"loss or gradient is not finite: {', '.join(taken['not_finite'])}", facts)
    return Outcome("pass", f"{len(taken['arms'])} arms and options took a step", facts)


def _compiled(here: Here) -> Outcome:
    settings = written_out(here.measured)
    settings["model"] = settings["model"] | {"num_layers": 1}
    settings["training"] = settings["training"] | {"batch_size": 2}
    found = answer_of("compiled", _request(here) | {"settings": settings}, here=here)
    loss, gradient = (limits[found["precision"]] for limits in (LOSS_TOLERANCES, GRADIENT_TOLERANCES))
    said = (
        f"in {found['precision']} the loss differs by {found['loss']:.1e} of itself (at most {loss:.0e} is accepted), "
        f"the gradient of a parameter by at most {found['gradient']:.1e} ({found['parameter']}; "
        f"at most {gradient:.0e} is accepted)"
    )
    agree = found["loss"] <= loss and found["gradient"] <= gradient  # false where one is no number
    return Outcome("pass" if agree else "fail", said, found)


def _memory(here: Here) -> Outcome:
    found = answer_of("memory", _request(here), here=here)
    said = (
        f"two steps fit: {size(found['peak_bytes'])} of {size(found['total_bytes'])} at their peak ({found['machine']})"
    )
    return Outcome("pass", said, found)


def _efficiency(here: Here) -> Outcome:
    found = answer_of("efficiency", _request(here), here=here, processes=len(here.gpus))
    share = found["efficiency"]
    work = found["processes"] * share  # of one GPU alone: below 1, the others only cost time
    said = (
        f"{found['processes']} GPUs do {work:.2f} times the work of one ({share:.0%}): a step "
        f"takes {1000 * found['together_seconds']:.1f} ms together and {1000 * found['alone_seconds']:.1f} ms alone"
    )
    return Outcome("pass" if work >= 1 else "fail", said, found)


CHECKS = (
    Check("device", ("torch sees the device", "torch 能看到设备"), _nothing, _device),
    Check("repeated", ("two short runs are bit-equal", "两次短运行逐位相同"), _nothing, runs.repeated),
    Check("resumed", ("kill -9 and resume is bit-equal", "kill -9 后恢复，逐位相同"), _nothing, runs.resumed),
    Check(
        "processes",
        ("two processes compute what one does", "两个进程与一个进程结果一致"),
        _two_devices,
        runs.in_two_processes,
    ),
    Check("arms", ("every kind of arm takes a step", "每类实验组都能完成一步"), _nothing, _every_arm),
    Check("compiled", ("compiled and eager code agree", "编译与非编译结果一致"), _a_compiler, _compiled),
    Check("memory", ("a step fits into the GPU", "显存能容纳一步训练"), _a_gpu, _memory),
    Check("efficiency", ("several GPUs against one", "多 GPU 并行效率"), _two_gpus, _efficiency),
)
