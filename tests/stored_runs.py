"""Finished run directories without training: what a run would have left behind, with a loss of one's choosing.

For runs that classify the chosen number is the error rate.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

from oelm.analysis.findings import ArmSummary
from oelm.core.accounting import parts, totals
from oelm.core.config import STEP_EXECUTION, Encoder, Run, fingerprint, resolved, stored_fingerprint, stored_form
from oelm.core.measures import Measure
from oelm.core.parts import AS_GIVEN, BASELINE
from oelm.core.probes.probe import is_probe, probe_of
from oelm.run.directory import TUNING_FOLDER, RunDirectory, folder_name
from oelm.run.sealing import seal_run
from oelm.storage.files import write_sealed
from oelm.study.bench_fit import step_execution, timed_settings
from oelm.study.declaration import Study
from oelm.study.kept_choices import store_choices
from oelm.study.plan import PlannedRun, planned
from oelm.study.reading import study_of
from oelm.study.shelf import Shelf
from oelm.study.tuning import Point

ATTENTION = ("query", "key", "value", "output")  # what formats before the fourth spoke of
VOCABULARY = 64
ENCODER_FACTS: dict[str, Any] = {
    "vocabulary": 100, "positions": 32, "token_types": 2, "d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 32,
    "labels": 3, "seq_len": 24, "mean_length": 12.5,
}  # fmt: skip
FLOOR = {"unigram_loss": 12.0, "bigram_loss": 11.0}  # of text: above whatever loss a law is about
EXAMPLES = 400  # of the reported split, where runs classify
DATA_DIGEST = "d" * 64
CHOSEN, STARTED, UPDATED = (f"2026-01-01T00:{minute}:00+00:00" for minute in ("00", "10", "20"))
ENVIRONMENT: dict[str, Any] = {
    "commit": "c" * 40,
    "dirty": False,
    "source_digest": "a" * 64,
    "python": "3.12.0",
    "platform": "Linux-x86_64",
    "processor": "A Processor",
    "versions": {"oelm": "0.1.0", "torch": "2.10.0", "numpy": "2.4.0"},
    "device": "cpu",
    "precision": "float32",
    "compile": False,
    "threads": 1,
    "micro_batch_size": 4,
    "deterministic": True,
    "tf32": False,
    "world_size": 1,
    "data_digest": DATA_DIGEST,
}
TRAINING_RECORDS = 20

COMPARED_ARMS = [
    "trained",
    "trained_head_orthogonal",
    "frozen_head_orthogonal",
    "frozen_normal",
    "frozen_scaled_normal",
]
FREEZING = ["start", "scale", "moves"]  # what a frozen orthogonal arm varies against a trained one

PRETRAINED_ARMS = [
    "fine_tuned",
    "frozen_pretrained",
    "frozen_orthogonalised",
    "frozen_head_orthogonal",
    "frozen_normal",
]

Losses = Callable[[str, int, str, Point], float | None]  # arm, seed, stage, point


def small_study(**changes: Any) -> Study:
    """A study of small runs; `changes` replace its keys."""
    model = {"seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4}
    training = {"steps": 40, "batch_size": 4, "learning_rate": 1e-3}
    tree = {
        "name": "small",
        "question": "Does it hold?",
        "base": {"model": model, "training": training, "data": "data/small"},
        "arms": COMPARED_ARMS,
        "seeds": [0, 1, 2, 3, 4],
        "looks": "none",
    }
    return study_of(as_before(tree | changes), name="small")


def small_classification(**changes: Any) -> Study:
    """A study of small fine-tuning runs; `changes` replace its keys."""
    training = {"steps": 40, "batch_size": 8, "learning_rate": 1e-4}
    tree = {
        "name": "sentences",
        "question": "Does it hold?",
        "base": {"preset": "fine-tuning", "training": training, "data": "data/sentences"},
        "arms": PRETRAINED_ARMS,
        "seeds": [0, 1, 2, 3, 4],
        "looks": "none",
    }
    return study_of(as_before(tree | changes), name="sentences")


SolvedBy = Callable[[str, int, str, Point], int | None]  # arm, seed, stage, point -> the step from which it is solved
SOLVED, AT_CHANCE = {"4": 1.0, "8": 0.84}, {"4": 0.25, "8": 0.125}  # accuracy by difficulty; the mean of SOLVED is 0.92


def small_probes(**changes: Any) -> Study:
    """A study of small runs of a probe, validated every 10 of 200 steps; `changes` replace its keys."""
    model = {"seq_len": 32, "d_model": 32, "num_layers": 2, "num_heads": 4}
    training = {"steps": 200, "batch_size": 4, "learning_rate": 1e-3, "validate_every": 10}
    tree = {
        "name": "probes",
        "question": "Does it solve it?",
        "base": {"model": model, "training": training, "data": "probe:recall?pairs=4,8&length=32"},
        "arms": ["trained", "frozen_head_orthogonal"],
        "seeds": list(range(8)),
        "looks": "none",
    }
    return study_of(as_before(tree | changes), name="probes")


def as_before(tree: dict[str, Any]) -> dict[str, Any]:
    """With one tuning seed and the lowest loss, unless it says otherwise."""
    tuning = tree.get("tuning")
    return tree | ({"tuning": {"seeds": [1000], "choose": "lowest"} | tuning} if tuning else {})


def solving_claim(kind: str = "solves_more", **changes: Any) -> dict[str, Any]:
    """A claim about when the frozen arm and the baseline solve a probe."""
    arms = {"treatment": "frozen_head_orthogonal", "control": "trained", "varies": FREEZING}
    return {"name": kind, "claim": f"It {kind}.", "kind": kind, "solved_at": 0.9, **arms, **changes}


def probe_curve(solved_by: SolvedBy) -> Callable[[PlannedRun, int], dict[str, Any]]:
    """What runs of a probe measure that are at chance up to a step, and have solved it from then on."""

    def measured(run: PlannedRun, step: int) -> dict[str, Any]:
        solved = solved_by(run.arm, run.seed, run.stage, run.point)
        found = SOLVED if solved is not None and step >= solved else AT_CHANCE
        return {"accuracy": sum(found.values()) / len(found), "accuracy_by_difficulty": found}

    return measured


def accuracy_claim(kind: str = "not_worse", **changes: Any) -> dict[str, Any]:
    """A claim about the accuracy of the frozen pretrained arm and the baseline."""
    arms = {"treatment": "frozen_pretrained", "control": "fine_tuned", "varies": ["moves"]}
    margin = {"margin_points": 2} if kind in ("not_worse", "equivalent") else {}
    claim = {"name": kind, "claim": f"It is {kind}.", "kind": kind, "measure": "accuracy"}
    return claim | arms | margin | changes


def hypothesis(kind: str = "not_worse", **changes: Any) -> dict[str, Any]:
    """A claim about the frozen arm and the baseline."""
    arms = {"treatment": "frozen_head_orthogonal", "control": "trained", "varies": FREEZING}
    margin = {"margin_percent": 5} if kind in ("not_worse", "equivalent") else {}
    least = {"least_frozen": 1000} if kind == "fewer_parameters" else {}
    return {"name": kind, "claim": f"It is {kind}.", "kind": kind, **arms, **margin, **least, **changes}


def facts_of(study: Study) -> dict[str, Any]:
    return ENCODER_FACTS if study.fine_tunes else {"vocabulary": VOCABULARY}


def digest_of_data(data: str) -> str:
    """Of a probe its own; of a folder, which is not here, any."""
    return probe_of(data).digest if is_probe(data) else DATA_DIGEST


def with_values(summary: ArmSummary, measure: Measure, values: Iterable[float]) -> ArmSummary:
    """An arm whose seeds, from 0 on, had these values."""
    by_seed = dict(enumerate(map(float, values)))
    costs = {seed: measure.cost(value) for seed, value in by_seed.items()}
    return replace(summary, quality=replace(summary.quality, values=by_seed, costs=costs))


def store_study(
    study: Study,
    folder: Path,
    losses: Losses,
    *,
    shift: Callable[[PlannedRun], float] = lambda run: 0.0,
    leaves: Callable[[PlannedRun], bool] = lambda run: False,
    stores_choices: bool = True,
    **changes: Any,
) -> Shelf:
    """Store every run the study asks for until it asks for no more, and what tuning chose, as a controller does.

    A loss of None leaves the run missing, an infinite one is a diverged run, NaN a failed one; `shift` is added to it.
    What `leaves` names is left missing too.
    """
    tried: set[tuple] = set()
    while True:
        shelf = Shelf(folder)
        plan = planned(study, shelf, facts=facts_of(study))
        wanted = [run for run in plan.runs if run.stored is None and (run.title, run.stage) not in tried]
        if not wanted:
            return shelf
        if stores_choices:
            with mock.patch("oelm.study.decisions.now", return_value=CHOSEN):
                store_choices(plan, folder, data_digest=digest_of_data(study.base["data"]))
        for run in wanted:
            tried.add((run.title, run.stage))
            loss = losses(run.arm, run.seed, run.stage, run.point)
            if loss is not None and not leaves(run):
                store_finished(run, folder, loss + shift(run), **changes)


def store_finished(
    planned_run: PlannedRun,
    folder: Path,
    loss: float,
    *,
    name: str | None = None,
    step_seconds: float = 0.05,
    environment: dict[str, Any] | None = None,
    result: dict[str, Any] | None = None,
    also: Callable[[float], dict[str, Any]] = lambda loss: {},
    measured: Callable[[PlannedRun, int], dict[str, Any]] = lambda run, step: {},
) -> Path:
    """One run directory below a study's folder; `environment` and `result` replace single entries, and `also` says what
    else is measured where the loss is, `measured` what at a step.
    """
    run = resolved(planned_run.run, ENCODER_FACTS if _fine_tunes(planned_run.run) else {"vocabulary": VOCABULARY})
    of_data = {"data_digest": digest_of_data(run.data)}
    recorded = ENVIRONMENT | {"world_size": planned_run.processes} | of_data | (environment or {})
    digest = recorded["data_digest"]
    stage = folder / TUNING_FOLDER if planned_run.stage == "tuning" else folder
    default_name = folder_name(run, arm=planned_run.arm, seed=planned_run.seed, data_digest=digest)
    directory = RunDirectory(stage / (name or default_name))
    directory.path.mkdir(parents=True)
    _write(directory.config_file, stored_form(run))
    _write(directory.environment_file, recorded)
    _write(directory.parameters_file, parameters_of(run))
    state = "finished" if math.isfinite(loss) else "diverged" if math.isinf(loss) else "failed"
    _write(directory.status_file, _status(run, state))
    records = metric_records(run, loss if math.isfinite(loss) else 9.0, step_seconds)
    records = [
        record | (also(record["val_loss"]) | measured(planned_run, record["step"]) if "val_loss" in record else {})
        for record in records
    ]
    directory.metrics_file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    if state == "finished":
        stored_result = _result(run, loss, recorded, step_seconds, digest) | also(loss)
        stored_result |= measured(planned_run, run.training.steps) | (result or {})
        _write(directory.result_file, stored_result)
        if _fine_tunes(run):
            _write(directory.predictions_file, predictions_of(run, loss))
    if state != "failed":
        seal_run(directory, state, step=run.training.steps)
    return directory.path


def without_seal(path: Path) -> Path:
    """The same run as a format before the seal left it."""
    directory = RunDirectory(path)
    directory.seal_file.unlink(missing_ok=True)
    tree = json.loads(directory.config_file.read_text())
    older = with_attention(tree)
    _write(directory.config_file, older | {"format_version": 2})
    if directory.result_file.exists():
        digest = json.loads(directory.environment_file.read_text()).get("data_digest", DATA_DIGEST)
        now, then = (stored_fingerprint(each, data_digest=digest) for each in (tree, older))
        directory.result_file.write_text(directory.result_file.read_text().replace(now, then))  # whatever else it is
    return path


def with_attention(tree: dict[str, Any]) -> dict[str, Any]:
    """A config as formats before the fourth stored it: four projections, said of all layers alike."""
    model = dict(tree["model"])
    if "parts" not in model:
        return tree
    is_encoder = model.get("kind") == "encoder"
    written = model.pop("parts")
    others = (AS_GIVEN if is_encoder else BASELINE).model_dump(mode="json")
    assert all(written[role] == others[role] for role in written if role not in ATTENTION), "no older format has it"
    if is_encoder:  # which stored what it never used
        written = written | {role: BASELINE.of(role).model_dump(mode="json") for role in ("value", "output")}
    assert all(written[role]["layers"] == "all" for role in ATTENTION), "no older format has it"
    attention = {role: {key: value for key, value in written[role].items() if key != "layers"} for role in ATTENTION}
    return {**tree, "model": model | {"attention": attention}}


def sealed_again(path: Path) -> Path:
    """As if the run itself had left its files as they are now."""
    directory = RunDirectory(path)
    seal = json.loads(directory.seal_file.read_text())
    seal_run(directory, seal["state"], step=seal["step"])
    return path


def _fine_tunes(run: Run) -> bool:
    return isinstance(run.model, Encoder)


def predictions_of(run: Run, error: float) -> dict[str, Any]:
    """As many wrong as the error rate says; which ones depends on the arm and the seed."""
    labels = [example % 3 for example in range(EXAMPLES)]
    wrong = random.Random(f"{run.arm} {run.seeds.data}").sample(range(EXAMPLES), round(error * EXAMPLES))
    predicted = [(label + 1) % 3 if example in set(wrong) else label for example, label in enumerate(labels)]
    return {"split": run.training.validation_split, "labels": labels, "predicted": predicted}


def parameters_of(run: Run) -> dict[str, Any]:
    counted = totals(run.model)
    return {
        "total": counted.total,
        "trainable": counted.trainable,
        "frozen": counted.frozen,
        "weight_bytes": counted.weight_bytes,
        "gradient_bytes": counted.gradient_bytes,
        "optimizer_bytes": counted.optimizer_bytes,
        "frozen_digest": "f" * 64 if counted.frozen else None,
        "parts": [asdict(part) | {"trainable": part.trainable} for part in parts(run.model)],
    }


def metric_records(run: Run, loss: float, step_seconds: float) -> list[dict[str, Any]]:
    """A falling curve that ends at the loss."""
    training = run.training
    tokens_per_step = round(training.batch_size * run.model.tokens_per_example)

    def at(step: int) -> float:
        return loss + 2 * (math.exp(-5 * step / training.steps) - math.exp(-5))

    def place(step: int) -> dict[str, Any]:
        return {"step": step, "tokens": step * tokens_per_step, "seconds": step * step_seconds}

    records = []
    for step in _every(max(1, training.steps // TRAINING_RECORDS), training.steps):
        measured = {"train_loss": at(step), "learning_rate": _learning_rate(run, step)}
        records.append(place(step) | measured | {"gradient_norm": 0.5, "clipped_fraction": 0.0})
    for step in _every(training.validate_every, training.steps):
        measured = {"val_loss": at(step), **_quality(run, at(step))}
        records.append(place(step) | {"validation_seconds": 0.1 * step * step_seconds} | measured)
    return sorted(records, key=lambda record: record["step"])


def _quality(run: Run, loss: float) -> dict[str, Any]:
    if _fine_tunes(run):
        return {"accuracy": round((1 - min(loss, 1.0)) * EXAMPLES) / EXAMPLES}
    return {"perplexity": perplexity_of(loss)}


def perplexity_of(loss: float) -> float | None:
    return math.exp(loss) if loss < 700 else None


def store_bench(
    folder: Path, *, baseline: str, seconds: dict[str, list[float]], study: Study | None = None, **changes: Any
) -> None:
    """What `oelm bench` of a study writes, on a quiet machine, the twin exactly as fast as the baseline.

    Arms that the study does not have are measured as its baseline. A change to None leaves the key out.
    """
    study = study or small_study()
    kept = {key: ENVIRONMENT[key] for key in (*STEP_EXECUTION, "source_digest", "data_digest")}
    rounds = len(seconds[baseline])
    folder.mkdir(parents=True, exist_ok=True)
    plan = planned(study, Shelf(folder))
    timed = {arm: timed_settings(plan, arm if arm in study.arms else study.baseline) for arm in seconds}
    tree = {
        "format_version": 3,
        "baseline": baseline,
        "rounds": rounds,
        "rebuilt": True,
        "seconds": seconds,
        "twin": seconds[baseline],
        "blocks": [{"seconds": 1.0, "disturbed": []} for _ in range(rounds)],
        "work": {arm: {"products": 1.0, "optimizer": 1.0, "memory": 1.0} for arm in seconds},
        "runs": {arm: stored_form(resolved(each.run, facts_of(study))) for arm, each in timed.items()},
        "execution": step_execution(timed_settings(plan, study.baseline).execution),
        "created": "2026-01-01T00:00:00Z",
    }
    stored = tree | kept | changes
    write_sealed(folder / "bench.json", {key: value for key, value in stored.items() if value is not None})


def _every(interval: int, steps: int) -> list[int]:
    return sorted({*range(interval, steps + 1, interval), steps})


def _learning_rate(run: Run, step: int) -> float:
    training = run.training
    if step <= training.warmup_steps:
        return training.learning_rate * step / training.warmup_steps
    part = (step - training.warmup_steps) / max(1, training.steps - training.warmup_steps)
    floor = training.final_learning_rate_fraction
    return training.learning_rate * (floor + (1 - floor) * (1 + math.cos(math.pi * part)) / 2)


def _status(run: Run, state: str) -> dict[str, Any]:
    process = {"host": "elsewhere", "boot_id": "b", "pid": 1, "pid_started": "1"}
    times = {"started": STARTED, "updated": UPDATED}
    error = {"error": "RuntimeError: something broke"} if state == "failed" else {}
    return process | times | error | {"state": state, "step": run.training.steps, "steps": run.training.steps}


def _result(run: Run, loss: float, recorded: dict[str, Any], step_seconds: float, data_digest: str) -> dict[str, Any]:
    steps = run.training.steps
    tokens = round(steps * run.training.batch_size * run.model.tokens_per_example)
    seconds = steps * step_seconds
    counted = totals(run.model)
    of_text = {
        "perplexity": perplexity_of(loss),
        "best_perplexity": perplexity_of(loss),
        "validation_tokens": run.training.final_validation_sequences * run.model.seq_len,
        **FLOOR,
    }
    return {
        "arm": run.arm,
        "fingerprint": fingerprint(run, data_digest=data_digest),
        "seeds": run.seeds.model_dump(),
        "steps": steps,
        "tokens": tokens,
        "train_loss": loss,
        "val_loss": loss,
        "best_val_loss": loss,
        **(_quality(run, loss) | {"examples": EXAMPLES} if _fine_tunes(run) else of_text),
        "best_step": steps,
        "validation_split": run.training.validation_split,
        "learning_rate": run.training.learning_rate,
        "total": counted.total,
        "trainable": counted.trainable,
        "frozen": counted.frozen,
        "frozen_digest": "f" * 64 if counted.frozen else None,
        "clipped_fraction": 0.0,
        "training_seconds": seconds,
        "validation_seconds": 0.1 * seconds,
        "wall_seconds": 1.2 * seconds,
        "mean_step_seconds": step_seconds,
        "tokens_per_second": tokens / seconds,
        "peak_memory_bytes": 300 * 2**20,
        "resumes": 0,
        **{key: recorded[key] for key in ("world_size", "device", "precision", "compile")},
    }


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")
