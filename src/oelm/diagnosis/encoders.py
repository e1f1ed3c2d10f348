"""The diagnosis of a fine-tuning run: its encoder before training, or the best one it has stored.

Real steps are the training loop's own, on the run's data; what is stored is loaded as its users load it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from oelm.accounting import totals
from oelm.arms import described
from oelm.config import Encoder, Execution, Run
from oelm.diagnosis.any_module import diagnose
from oelm.diagnosis.report import Diagnosis
from oelm.diagnosis.verdict import total_problems
from oelm.errors import UserError
from oelm.files import read_json
from oelm.run_directory import RunDirectory
from oelm.settings import stored_run
from oelm.training.assembly import assembled, with_optimizer
from oelm.training.device import resolve_machine
from oelm.training.distributed import World
from oelm.training.loop import optimization_steps
from oelm.training.run import run_with_data

LEAST_RATE = 1e-4
FEW = 4  # examples of a step: enough for a gradient, few enough for seconds


def encoder_run_in(path: Path) -> Run | None:
    """The run of a directory whose model is an encoder; None for any other folder."""
    config_file = RunDirectory(path).config_file
    tree = read_json(config_file) if config_file.exists() else {}
    if not isinstance(tree, dict) or tree.get("model", {}).get("kind") != "encoder":
        return None
    return stored_run(tree, name=str(config_file))


def diagnose_encoder(run: Run, *, steps: int = 3, stored_in: Path | None = None) -> Diagnosis:
    """Build the arm as training does, or load what the run in a folder stored, and examine it."""
    assert isinstance(run.model, Encoder)
    run, data = run_with_data(_few_examples(run))
    execution = Execution(device="cpu", precision="float32")
    machine, _ = resolve_machine(execution, run, local_rank=0, world_size=1)
    task, optimizer, schedule = assembled(run, data, machine=machine, world=World())
    if stored_in is not None:
        from oelm.huggingface.applying import load

        best = RunDirectory(stored_in).best
        if not best.exists():
            raise UserError(f"{stored_in}: has no model: nothing was saved before the run ended")
        task.model = load(best)
        task, optimizer, schedule = with_optimizer(task, run)
    taken = optimization_steps(task, optimizer, run, schedule=schedule, machine=machine, world=World())
    found = diagnose(task.model, optimizer=optimizer, step=lambda: next(taken), steps=min(steps, run.training.steps))
    counts = {"closed form": totals(run.model), **found.counts}
    return replace(
        found,
        subject=f"{stored_in or f'arm {run.arm}'} ({described(run.model.attention)})",
        counts=counts,
        notes=(*found.notes, f"examples: {run.data}"),
        problems=(*found.problems, *(line for line in total_problems(counts) if line not in found.problems)),
    )


def _few_examples(run: Run) -> Run:
    """At one rate, large enough to show in the last bit of a weight."""
    rate = max(run.training.learning_rate, LEAST_RATE)
    changes = {"batch_size": FEW, "warmup_steps": 0, "learning_rate": rate, "final_learning_rate_fraction": 1.0}
    return run.model_copy(update={"training": run.training.model_copy(update=changes)})
