"""The data a run names: text as one stream of tokens for a GPT, labelled sentences for an encoder."""

from __future__ import annotations

from pathlib import Path

from oelm.config import Encoder, Run
from oelm.data import sentences, tokens
from oelm.data.sentences import SentenceData, open_sentences
from oelm.data.tokens import TokenData, open_tokens

Data = TokenData | SentenceData


def open_data(run: Run) -> Data:
    """Map it, with sizes checked; a missing folder is an error that names the command to make it."""
    return open_sentences(Path(run.data)) if isinstance(run.model, Encoder) else open_tokens(Path(run.data))


def check_digests(data: Data) -> None:
    """Read every file and compare it with its manifest: finds a flipped byte."""
    (sentences if isinstance(data, SentenceData) else tokens).check_digests(data)
