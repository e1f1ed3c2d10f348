"""The diagnosis of an arm before it is trained, and of what a run has stored. Nothing of a run is changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from oelm.core.arm_words import described
from oelm.core.config import EncoderRun, GptRun, Run, Training, as_far_as_known, resolved_training
from oelm.core.model.initialization import build
from oelm.core.model.transformer import GPT
from oelm.core.probes.probe import is_probe
from oelm.data.folders import ProbeData
from oelm.data.sentences import SentenceData
from oelm.data.tokens import GPT2_VOCABULARY, TokenData, open_tokens
from oelm.machine.errors import UserError
from oelm.run.diagnosis.encoders import diagnose_encoder, encoder_run_of
from oelm.run.diagnosis.examination import examined
from oelm.run.diagnosis.history import history, loading_problems
from oelm.run.diagnosis.report import Diagnosis
from oelm.run.diagnosis.steps import TOKENS, drawn_tokens
from oelm.run.diagnosis.storage import header_dtypes
from oelm.run.directory import RunDirectory, run_around
from oelm.run.stored_models.loading import StoredModel, language_run, load_stored
from oelm.run.training.checkpoint import load_weights
from oelm.run.training.run import run_with_data

DRAWN = "tokens: random, from a fixed seed"


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
    gpt = _with_stored_precision(stored)
    directory = _run_directory_of(stored.weights_file)
    run, notes = _run_of(stored, directory)
    tokens, tokens_note = _tokens_of(run)
    problems = loading_problems(gpt, stored.weights_file)
    if directory is not None:
        history_notes, history_problems = history(gpt, run, directory, stored.weights_file)
        notes, problems = notes + history_notes, problems + history_problems
    return examined(
        gpt,
        run,
        tokens,
        subject=f"{stored.weights_file} ({described(run.model)})",
        steps=steps,
        notes=[*notes, tokens_note],
        problems=problems,
        weights_file=stored.weights_file,
    )


def _with_stored_precision(stored: StoredModel) -> GPT:
    """A float64 run is compared in float64."""
    if "F64" in header_dtypes(stored.weights_file):
        stored.gpt.to(torch.float64)
        load_weights(stored.gpt, stored.weights_file)
    return stored.gpt


def _run_directory_of(weights_file: Path) -> RunDirectory | None:
    """The run a best/ folder or a checkpoint stands in; None for a folder that was copied out of its run."""
    directory = run_around(weights_file.parent)
    return directory if directory is not None and directory.parameters_file.exists() else None


def _run_of(stored: StoredModel, directory: RunDirectory | None) -> tuple[GptRun, list[str]]:
    if stored.run is not None:
        return stored.run, []
    if directory is not None:
        return language_run(directory, directory.path), []
    note = "this folder is not inside a run, so its seeds and training settings are unknown; defaults are used"
    return GptRun(arm="stored", model=stored.model, training=resolved_training(Training())), [note]


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
