"""All checks one after another, each ending in one line, and the record that is kept with a study."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import oelm
from oelm.core.config import Encoder, Settings
from oelm.core.settings import load_settings, written_out
from oelm.core.sources import SCHEME, SOURCE_DIGEST, SOURCE_SCHEME, commit_and_changes, source_digest
from oelm.execution.checking import runs
from oelm.execution.checking.outcomes import CheckFailed, Here, Outcome, answer_of
from oelm.machine.errors import UserError, first_line
from oelm.machine.exhaustion import size
from oelm.machine.plurals import number_of
from oelm.machine.system import lacking_to_compile, processor
from oelm.storage.ownership import now
from oelm.study.declaration import Study
from oelm.study.kept_check import FORMAT_VERSION
from oelm.study.one_run import settings_for

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


# What is timed where no study says: a real model on a GPU, one that a processor can bear otherwise.
DEFAULT_PRESETS = {"cuda": "medium-512", "cpu": "tiny"}
DEFAULT_BATCH = {"cuda": 32, "cpu": 8}  # sequences at most: seconds rather than minutes

Line = Callable[[str], None]


def chosen(names: str | None) -> list[Check]:
    """The rows of the table that were asked for, in its order."""
    if names is None:
        return list(CHECKS)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    known = [check.name for check in CHECKS]
    if not wanted:
        raise UserError(f"--only: name at least one of {', '.join(known)}")
    for name in wanted:
        if name not in known:
            raise UserError(f"--only {names}: {name!r} is not a check; there are {', '.join(known)}")
    return [check for check in CHECKS if check.name in wanted]


def measured_settings(study: Study | None, kind: str) -> tuple[Settings, str]:
    """What is timed and weighed, and how to call it: a study's baseline with a batch that one card can take."""
    if study is not None:
        settings = settings_for(study, study.baseline, seed=study.seeds[0])
        if not isinstance(settings.run.model, Encoder):
            return _with_batch(settings, kind), f"{study.baseline} of {study.name}"
    preset = DEFAULT_PRESETS[kind]
    return _with_batch(load_settings(preset=preset), kind), f"preset {preset}"


def _with_batch(settings: Settings, kind: str) -> Settings:
    batch = min(settings.run.training.batch_size, DEFAULT_BATCH[kind])
    training = settings.run.training.model_copy(update={"batch_size": batch})
    return settings.model_copy(update={"run": settings.run.model_copy(update={"training": training})})


def circumstances(gpus: Sequence[str], measured: str) -> dict[str, Any]:
    """What two records have to agree in for their results to stand side by side (study/kept_check.py)."""
    return {
        "torch": version("torch"),
        "devices": list(gpus) or ["cpu"],
        SOURCE_DIGEST: source_digest(),
        SOURCE_SCHEME: SCHEME,
        "processor": processor(),
        "measured": measured,
    }


def conduct(
    checks: Sequence[Check],
    here: Here,
    *,
    say: Line,
    beginning: Line = lambda line: None,
    measured: str = "",
    earlier: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Do them; `say` is given a line for each that ends, `beginning` one for each that begins. Results of `earlier`
    checks stay in the record, except where the same check was done again."""
    done = []
    for number, check in enumerate(checks, start=1):
        beginning(f"{number}/{len(checks)} {check.words[0]} ...")
        began = time.monotonic()
        outcome = _outcome(check, here)
        seconds = time.monotonic() - began
        say(f"{outcome.state:8} {check.name:10} {outcome.said} ({seconds:.0f} s)")
        done.append(_as_json(check, outcome, seconds))
    again = {each["name"] for each in done}
    results = sorted([*(each for each in earlier if each["name"] not in again), *done], key=_place)
    return {
        "format_version": FORMAT_VERSION,
        "created": now(),
        "oelm": oelm.__version__,
        **commit_and_changes(),
        **circumstances(here.gpus, measured),
        "gpus": _gpu_names(results),
        "results": results,
    }


def _place(result: dict[str, Any]) -> int:
    """In the table; what only another version has comes last."""
    names = [check.name for check in CHECKS]
    return names.index(result["name"]) if result["name"] in names else len(names)


def _outcome(check: Check, here: Here) -> Outcome:
    lack = check.lacks(here)
    if lack is not None:
        return Outcome("skipped", lack)
    try:
        return check.run(here)
    except (CheckFailed, UserError, OSError) as error:  # of its processes, or of what they left
        return Outcome("fail", first_line(error))


def _as_json(check: Check, outcome: Outcome, seconds: float) -> dict[str, Any]:
    return {
        "name": check.name,
        "words": list(check.words),
        "state": outcome.state,
        "said": outcome.said,
        "facts": outcome.facts,
        "seconds": round(seconds, 3),
        "created": now(),
    }


def _gpu_names(results: list[dict[str, Any]]) -> list[str]:
    return [name for each in results if each["name"] == "device" for name in each["facts"].get("gpus", [])]
