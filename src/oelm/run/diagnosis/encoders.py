"""The diagnosis of a fine-tuning run: its encoder before training, or the best one it has stored.

Real steps are the training loop's own, on the run's data; what is stored is loaded as its users load it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import nn

from oelm.core.accounting import totals
from oelm.core.arm_words import described
from oelm.core.config import EncoderRun, Execution, kind_of_model
from oelm.core.settings import stored_run
from oelm.data.sentences import SentenceData
from oelm.machine.errors import UserError
from oelm.run.diagnosis.any_module import diagnose
from oelm.run.diagnosis.report import Diagnosis, total_problems
from oelm.run.diagnosis.steps import LEAST_LEARNING_RATE
from oelm.run.directory import RunDirectory, is_checkpoint
from oelm.run.training.assembly import assembled, with_optimizer
from oelm.run.training.checkpoint import MODEL_FILE, latest_whole, load_weights
from oelm.run.training.device import resolve_machine
from oelm.run.training.distributed import World
from oelm.run.training.loop import optimization_steps
from oelm.storage.files import read_json

FEW = 4  # examples of a step: enough for a gradient, few enough for seconds


def encoder_run_of(path: Path) -> EncoderRun | None:
    """The run whose directory, checkpoint or best/ folder this is, if its model is an encoder."""
    for folder in (path, path.absolute().parent, path.absolute().parent.parent):
        config_file = RunDirectory(folder).config_file
        tree = read_json(config_file) if config_file.exists() else {}
        if isinstance(tree, dict) and "format_version" in tree:
            if kind_of_model(tree.get("model")) != "encoder":
                return None
            run = stored_run(tree, name=str(config_file))
            return run if isinstance(run, EncoderRun) else None
    return None


def diagnose_encoder(
    declared: EncoderRun, data: SentenceData, *, steps: int = 3, stored_in: Path | None = None
) -> Diagnosis:
    """Build the arm as training does, or load what the run in a folder stored, and examine it."""
    # At one rate, large enough to show in the last bit of a weight.
    rate = max(declared.training.learning_rate, LEAST_LEARNING_RATE)
    few = {"batch_size": FEW, "warmup_steps": 0, "learning_rate": rate, "final_learning_rate_fraction": 1.0}
    run = declared.model_copy(update={"training": declared.training.model_copy(update=few)})
    execution = Execution(device="cpu", precision="float32")
    machine, _ = resolve_machine(execution, run, local_rank=0, world_size=1)
    objective, optimizer, schedule = assembled(run, data, machine=machine, world=World())
    if stored_in is not None:
        from oelm.run.training.classification import Classification

        model = _stored_model(objective.model, stored_in)
        restored = Classification(model, run, data, machine=machine, world=World())
        objective, optimizer, schedule = with_optimizer(restored, run)
    taken = optimization_steps(objective, optimizer, run, schedule=schedule, machine=machine, world=World())
    found = diagnose(
        objective.model, optimizer=optimizer, step=lambda: next(taken), steps=min(steps, run.training.steps)
    )
    counts = {"closed form": totals(run.model), **found.counts}
    return replace(
        found,
        subject=f"{stored_in or f'arm {run.arm}'} ({described(run.model)})",
        counts=counts,
        notes=(*found.notes, f"examples: {run.data}"),
        problems=(*found.problems, *(line for line in total_problems(counts) if line not in found.problems)),
    )


def _stored_model(built: nn.Module, path: Path) -> nn.Module:
    """From a run's best model, else its last whole checkpoint; or from that very folder. Any user loads best/ so."""
    from oelm.models.applying import load

    directory = RunDirectory(path)
    best = path if path.name == directory.best.name else directory.best
    checkpoint = path if is_checkpoint(path) else latest_whole(directory, say=lambda line: None)
    if not is_checkpoint(path) and (best / MODEL_FILE).exists():
        return load(best)
    if checkpoint is not None:
        load_weights(built, checkpoint / MODEL_FILE)
        return built
    raise UserError(f"{path}: has no model: the run ended before it saved one")
