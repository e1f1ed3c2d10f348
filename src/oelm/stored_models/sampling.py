"""Text from a stored model: tokenizer, prompt and sampling put together for `oelm generate`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from oelm.errors import UserError
from oelm.model.generation import Sampling, generated_tokens
from oelm.stored_models.loading import load_stored


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
