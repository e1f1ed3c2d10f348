"""From a request to something that takes steps: our arm on drawn tokens, on the device that is checked."""

from __future__ import annotations

from typing import Any

from oelm.config import Encoder, GptRun, Run, Settings, resolved
from oelm.errors import UserError
from oelm.probes.probe import is_probe
from oelm.settings import settings_of
from oelm.timing.workload import Workload, drawn_tokens, workload_of
from oelm.training.device import Machine, prepare_process, resolve_machine
from oelm.training.distributed import World

DRAWN_VOCABULARY = 1024  # of a run whose data would say


def asked(request: dict[str, Any], *, world: World | None = None, **execution: Any) -> tuple[GptRun, Machine, Workload]:
    """What a request's settings mean on this machine; `execution` goes above what they say."""
    return on_this_machine(settings_of(request["settings"], name="check"), request["kind"], world=world, **execution)


def on_this_machine(
    settings: Settings, kind: str, *, world: World | None = None, **execution: Any
) -> tuple[GptRun, Machine, Workload]:
    workload, place = _drawn(settings.run), world or World()
    run = resolved(settings.run, workload.facts)
    if not isinstance(run, GptRun):
        raise UserError("check: these settings are an encoder's, and only a GPT can be measured without its data")
    given = settings.execution.model_copy(update={"device": kind, **execution})
    machine, _ = resolve_machine(given, run, local_rank=place.local_rank, world_size=place.size)
    prepare_process(machine)
    return run, machine, workload


def _drawn(run: Run) -> Workload:
    """Random tokens, whatever data a run names; a probe makes its own."""
    if is_probe(run.data) or isinstance(run.model, Encoder):
        return workload_of(run)
    return drawn_tokens(run, vocabulary=run.model.vocabulary or DRAWN_VOCABULARY, seq_len=run.model.seq_len)
