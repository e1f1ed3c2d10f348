"""Has a stored model kept its frozen weights since the start? Compared with the run's record and with its seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oelm.core.config import GptRun
from oelm.core.model.initialization import build
from oelm.core.model.parameters import combined_digest, counts_by_part, frozen_names, parameter_digests, summed
from oelm.core.model.transformer import GPT
from oelm.core.parts import with_roles_of_now
from oelm.run.diagnosis.steps import same_bits, schedule_of
from oelm.run.diagnosis.storage import differing, header_metadata, header_shapes
from oelm.run.diagnosis.survey import enumerated
from oelm.run.directory import RunDirectory, checkpoint_step, is_checkpoint
from oelm.run.training.checkpoint import OPTIMIZER_FILE, read_tensors
from oelm.storage.schemas import Parameters, read_record

ROUNDING = 1e-5  # two machines' QR differ by less, a trained weight by more


def loading_problems(gpt: GPT, weights_file: Path) -> list[str]:
    changed = differing(gpt, read_tensors(weights_file))
    return [f"loading gave different values than {weights_file} contains: {enumerated(changed)}"] if changed else []


def history(gpt: GPT, run: GptRun, directory: RunDirectory, weights_file: Path) -> tuple[list[str], list[str]]:
    """Notes and problems."""
    recorded = read_record(directory.parameters_file, Parameters)
    names = frozen_names(gpt)
    digest = combined_digest(parameter_digests(gpt, names)) if names else None
    as_recorded = digest == recorded.get("frozen_digest")
    notes, problems = _compared_with_start(gpt, run, weights_file, as_recorded=as_recorded)
    if not as_recorded:
        problems.append(f"frozen weights are not those of the start: digest differs from {directory.parameters_file}")
    return notes, [*_recorded_count_problems(gpt, recorded), *_optimizer_problems(gpt, weights_file), *problems]


def _recorded_count_problems(gpt: GPT, recorded: dict[str, Any]) -> list[str]:
    counts = counts_by_part(gpt)
    total, frozen, implied = summed(counts)
    found = {"total": total, "trainable": total - frozen, "frozen": frozen, "implied": implied}
    lines = [
        f"parameters.json says {key} {recorded.get(key)}, the model has {value}"
        for key, value in found.items()
        if recorded.get(key, 0) != value
    ]
    parts = {
        (part["role"], part["layer"]): (part["total"], part["frozen"], part.get("implied", 0))
        for part in with_roles_of_now(recorded.get("parts", []))
    }
    wrong = [f"{role} of layer {layer}" for (role, layer), value in counts.items() if parts.get((role, layer)) != value]
    return lines + ([f"parameters.json has different counts for {enumerated(wrong)}"] if wrong else [])


def _optimizer_problems(gpt: GPT, weights_file: Path) -> list[str]:
    """A checkpoint's optimizer must know nothing of what never moves."""
    optimizer_file = weights_file.with_name(OPTIMIZER_FILE)
    if not optimizer_file.exists():
        return []
    held = {name.rpartition(":")[0] for name in header_shapes(optimizer_file)} & set(frozen_names(gpt))
    return [f"{optimizer_file} contains moments of frozen weights: {enumerated(sorted(held))}"] if held else []


def _compared_with_start(
    gpt: GPT, run: GptRun, weights_file: Path, *, as_recorded: bool
) -> tuple[list[str], list[str]]:
    """What has rested since the start must be what the seeds give."""
    step = _step_of(weights_file)
    rested = _rested(gpt, run, step)
    if not rested:
        return [], []
    start = dict(build(run.model, run.seeds).to(gpt.token_embedding.weight.dtype).named_parameters())
    now = dict(gpt.named_parameters())
    moved = [name for name in rested if not same_bits(start[name], now[name])]
    if not moved:
        return [f"{len(rested)} weights that were frozen up to step {step} are bit for bit what the seeds gave"], []
    furthest = max((start[name] - now[name]).abs().max().item() for name in moved)
    if as_recorded and furthest < ROUNDING:
        return [
            f"frozen weights are those the run recorded at its start; rebuilt here they differ by {furthest:.1e}, the "
            "rounding of another machine"
        ], []
    return [], [f"weights that had to stay frozen differ from their start by up to {furthest:.3g}: {enumerated(moved)}"]


def _rested(gpt: GPT, run: GptRun, step: int) -> list[str]:
    schedule, never = schedule_of(gpt, run), set(frozen_names(gpt))
    return [name for name in schedule.may_rest if name in never or schedule.rests_between(name, 1, step)]


def _step_of(weights_file: Path) -> int:
    folder = weights_file.parent
    if is_checkpoint(folder):
        return checkpoint_step(folder)
    return int(header_metadata(weights_file).get("step", 0))
