"""Text from a stored model: tokenizer, prompt and sampling put together for `oelm generate`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from oelm.core.model.generation import Sampling, generated_tokens
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory, is_run, run_around
from oelm.run.stored_models.loading import load_stored
from oelm.storage.files import write_json
from oelm.storage.ownership import now


def sampled_texts(
    path: Path,
    *,
    prompt: str,
    tokens: int,
    samples: int,
    temperature: float,
    top_k: int | None,
    seed: int,
) -> Iterator[str]:
    """Each sample: the prompt and what follows, up to the end of the text."""
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"--prompt: is not UTF-8 ({error.reason} at {error.start})") from error
    stored = load_stored(path)
    tokenizer = stored.tokenizer()
    if tokenizer is None:
        raise UserError(f"{path}: no tokenizer in its best/ folder or with its data, so text cannot be shown")
    start = tokenizer.encode(prompt) if prompt else []
    for number in range(samples):
        sampling = Sampling(temperature=temperature, top_k=top_k, seed=seed + number)
        text = list(start)
        for token in islice(generated_tokens(stored.gpt, [tokenizer.end_of_text, *start], sampling), tokens):
            if token == tokenizer.end_of_text:
                break
            text.append(token)
        yield tokenizer.decode(text)


def run_to_keep_in(path: Path) -> RunDirectory:
    """The run that a path names: its directory, its best model or a checkpoint of it."""
    directory = RunDirectory(path) if is_run(path) else run_around(path)
    if directory is None:
        raise UserError(f"--keep: {path} is not a run directory, nor in one")
    return directory


def keep_sample(directory: RunDirectory, path: Path, texts: list[str], **facts: Any) -> Path:
    """Store generated text with the run, in place of an earlier one; the file that was written."""
    of = directory.best.name if path.absolute() == directory.path.absolute() else path.name
    write_json(directory.sample_file, {**facts, "texts": texts, "of": of, "made": now()})
    return directory.sample_file
