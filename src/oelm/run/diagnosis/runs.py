"""The diagnosis of an arm before it is trained, and of what a run has stored. Nothing of a run is changed.

The arm's own rules, optimizer, loop and checkpoints are put to the test; a stored model is compared with the record of
its run and with its seeds.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from oelm.core.accounting import totals
from oelm.core.arm_words import described
from oelm.core.config import EncoderRun, GptRun, Run, Seeds, Training, as_far_as_known, resolved_training
from oelm.core.model.initialization import build
from oelm.core.model.parameters import (
    combined_digest,
    counts_by_part,
    frozen_names,
    implied_entries,
    parameter_digests,
    rules,
    summed,
)
from oelm.core.model.transformer import GPT
from oelm.core.parts import with_roles_of_now
from oelm.core.probes.probe import is_probe
from oelm.data.folders import ProbeData
from oelm.data.sentences import SentenceData
from oelm.data.tokens import GPT2_VOCABULARY, TokenData, open_tokens
from oelm.machine.errors import UserError
from oelm.run.diagnosis.any_module import with_trial
from oelm.run.diagnosis.encoders import diagnose_encoder, encoder_run_of
from oelm.run.diagnosis.report import Diagnosis, entry_problems, memory_of, storage_problems, total_problems
from oelm.run.diagnosis.steps import (
    TOKENS,
    Trial,
    drawn_tokens,
    same_bits,
    schedule_of,
    telling_steps,
    training_step,
    watched,
)
from oelm.run.diagnosis.storage import (
    differing,
    header_dtypes,
    header_metadata,
    header_shapes,
    stored_and_loaded,
    totals_by_spec,
)
from oelm.run.diagnosis.survey import Surveyed, counted, enumerated, expected_of, survey, survey_notes
from oelm.run.directory import RunDirectory, checkpoint_step, is_checkpoint, run_around
from oelm.run.stored_models.loading import language_run, load_stored
from oelm.run.training.checkpoint import OPTIMIZER_FILE, load_weights, read_tensors
from oelm.run.training.loop import Diverged
from oelm.run.training.optimizer import build_optimizer
from oelm.run.training.run import run_with_data
from oelm.storage.schemas import Parameters, read_record

DRAWN = "tokens: random, from a fixed seed"
ROUNDING = 1e-5  # two machines' QR differ by less, a trained weight by more


def diagnose_arm(run: Run, *, data_given: bool, steps: int = 3) -> Diagnosis:
    """Build the arm as training does, and examine it. Without data it sees seeded random tokens."""
    assumed = as_far_as_known(run, {"vocabulary": GPT2_VOCABULARY})
    if isinstance(assumed, GptRun) and not data_given and not is_probe(run.data):
        notes = [DRAWN]
        if run.model.vocabulary is None:
            notes.append(f"vocabulary: {GPT2_VOCABULARY:,} assumed (GPT-2's); --data DIR uses that of the data")
        return _diagnosed(assumed, drawn_tokens(assumed), steps, notes)
    match run_with_data(run):
        case EncoderRun() as known, SentenceData() as data:
            return diagnose_encoder(known, data, steps=steps)
        case GptRun() as known, TokenData() as data:
            return _diagnosed(known, data.splits["train"], steps, [f"tokens: {data.folder}"])
        case GptRun() as known, ProbeData():
            return _diagnosed(known, drawn_tokens(known), steps, [DRAWN])


def _diagnosed(run: GptRun, tokens: np.ndarray, steps: int, notes: list[str]) -> Diagnosis:
    subject = f"arm {run.arm} ({described(run.model)})"
    gpt = build(run.model, run.seeds)
    return examined(gpt, run, tokens, subject=subject, steps=steps, notes=notes, problems=[])


def diagnose_stored(path: Path, *, steps: int = 3) -> Diagnosis:
    """Load a run's model, a checkpoint or a best/ folder as any user of it does, and examine it."""
    encoder_run = encoder_run_of(path)
    if encoder_run is not None:
        match run_with_data(encoder_run):
            case EncoderRun() as known, SentenceData() as data:
                return diagnose_encoder(known, data, steps=steps, stored_in=path)
    stored = load_stored(path)
    gpt, file = stored.gpt, stored.weights_file
    if "F64" in header_dtypes(file):  # a float64 run is compared in float64
        gpt.to(torch.float64)
        load_weights(gpt, file)
    changed = differing(gpt, read_tensors(file))
    problems = [f"loading gave different values than {file} contains: {enumerated(changed)}"] if changed else []
    notes: list[str] = []
    directory = run_around(file.parent)
    if directory is not None and not directory.parameters_file.exists():
        directory = None
    if stored.run is not None:
        run = stored.run
    elif directory is not None:
        run = language_run(directory, directory.path)
    else:  # a folder that was copied out of its run
        run = GptRun(arm="stored", model=stored.model, training=resolved_training(Training()))
        notes = ["this folder is not inside a run, so its seeds and training settings are unknown; defaults are used"]
    tokens, tokens_note = _tokens_of(run)
    if directory is not None:
        history_notes, history_problems = _history(gpt, run, directory, file)
        notes, problems = notes + history_notes, problems + history_problems
    return examined(
        gpt,
        run,
        tokens,
        subject=f"{file} ({described(run.model)})",
        steps=steps,
        notes=[*notes, tokens_note],
        problems=problems,
        weights_file=file,
    )


def _tokens_of(run: GptRun) -> tuple[np.ndarray, str]:
    """The run's own data where it still lies, else drawn tokens."""
    try:
        data = open_tokens(Path(run.data))
    except UserError:
        return drawn_tokens(run), DRAWN
    tokens = np.asarray(data.splits["train"][:TOKENS])
    if len(tokens) <= run.model.seq_len or tokens.max() >= run.model.vocabulary:
        return drawn_tokens(run), f"{DRAWN}; {data.folder} is no longer the run's data"
    return tokens, f"tokens: {data.folder}"


# ---- One of our models -----------------------------------------------------------------------------------------------


def examined(
    gpt: GPT,
    run: GptRun,
    tokens: np.ndarray,
    *,
    subject: str,
    steps: int,
    notes: list[str],
    problems: list[str],
    weights_file: Path | None = None,
) -> Diagnosis:
    """Survey, steps, save and load. `notes` and `problems` are what is known already; the steps change `gpt`."""
    optimizer, schedule, by_name = build_optimizer(gpt, run.training), schedule_of(gpt, run), rules(gpt)
    # A buffer has no rule: one that looks like a weight can only be frozen.
    entries = survey(
        gpt,
        expected=lambda name: expected_of(by_name[name].moves) if name in by_name else "never",
        optimizer=optimizer,
    )
    notes, problems = [*notes, *survey_notes(gpt, entries)], [*problems]
    trial: Trial | None = None
    try:
        take = training_step(gpt, optimizer, run, tokens, schedule=schedule)
        trial = watched(gpt, take, telling_steps(schedule, at_least=steps), optimizer=optimizer)
    except Diverged as error:
        problems.append(f"a real step failed: {error}")
    if trial is not None:
        numbers = trial.numbers

        def should_move_at(entry: Surveyed) -> tuple[int, ...]:
            if entry.kind == "buffer":
                return ()
            return tuple(number for number in numbers if schedule.moves(entry.name, number))

        entries = with_trial(entries, trial, should_move_at)
    memory = memory_of(entries, optimizer)
    other_seeds = Seeds(weights=run.seeds.weights + 1, projections=run.seeds.projections + 1, data=run.seeds.data)
    storage = stored_and_loaded(gpt, run.model, other_seeds=other_seeds)
    # Three ways that share no code: arithmetic on the config, the model's flags, a file's header. Of what is implied a
    # file has nothing; for it the model answers.
    in_file = storage.totals if weights_file is None else totals_by_spec(header_shapes(weights_file), run.model)
    implied = sum(implied_entries(gpt).values())
    counts = {
        "closed form": totals(run.model),
        "on the model": counted(entries, implied=implied),
        "in a checkpoint": replace(in_file, implied=implied),
    }
    idle = [entry.name for entry in entries if entry.should_move == "by schedule" and entry.should_move_at == ()]
    if idle:
        never = f"never moves within {schedule.steps} steps, though its schedule is not `never`"
        notes.append(f"{never}: {enumerated(idle)}")
    problems += [*entry_problems(entries), *total_problems(counts)]
    # Where everything that may move has moved, the optimizer's state must have the size that the counts foretell.
    expected = memory.with_adam - memory.weights
    all_moved = all(entry.moved_at for entry in entries if entry.should_move in ("always", "by schedule"))
    if all_moved and memory.optimizer_state != expected:
        problems.append(
            f"the optimizer's moments take {memory.optimizer_state:,} bytes, not the {expected:,} of the counts"
        )
    return Diagnosis(
        subject=subject,
        entries=entries,
        counts=counts,
        memory=memory,
        trial=trial,
        storage=storage,
        notes=tuple(notes),
        problems=(*problems, *storage_problems(storage)),
    )


# ---- Has a stored model kept its frozen weights since the start? -----------------------------------------------------


def _history(gpt: GPT, run: GptRun, directory: RunDirectory, weights_file: Path) -> tuple[list[str], list[str]]:
    """Notes and problems."""
    recorded, names = read_record(directory.parameters_file, Parameters), frozen_names(gpt)
    digest = combined_digest(parameter_digests(gpt, names)) if names else None
    as_recorded = digest == recorded.get("frozen_digest")
    notes, moved = _compared_with_start(gpt, run, weights_file, as_recorded=as_recorded)
    problems = _recorded_count_problems(gpt, recorded)
    optimizer_file = weights_file.with_name(OPTIMIZER_FILE)
    if optimizer_file.exists():  # it must know nothing of what never moves
        held = {name.rpartition(":")[0] for name in header_shapes(optimizer_file)} & set(names)
        if held:
            problems.append(f"{optimizer_file} contains moments of frozen weights: {enumerated(sorted(held))}")
    problems += moved
    if not as_recorded:
        problems.append(f"frozen weights are not those of the start: digest differs from {directory.parameters_file}")
    return notes, problems


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


def _compared_with_start(
    gpt: GPT, run: GptRun, weights_file: Path, *, as_recorded: bool
) -> tuple[list[str], list[str]]:
    """What has rested since the start must be what the seeds give."""
    folder, schedule, never = weights_file.parent, schedule_of(gpt, run), set(frozen_names(gpt))
    step = checkpoint_step(folder) if is_checkpoint(folder) else int(header_metadata(weights_file).get("step", 0))
    rested = [name for name in schedule.may_rest if name in never or schedule.rests_between(name, 1, step)]
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
