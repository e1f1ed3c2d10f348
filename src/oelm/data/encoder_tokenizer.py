"""An encoder's own tokenizer: texts or pairs of them to ids, with the special tokens that the encoder wants.

The library `tokenizers` reads tokenizer.json; transformers is needed only where there are older files alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from oelm.machine.errors import UserError, first_line
from oelm.models.encoder_folder import TOKENIZER_FILES, EncoderFolder
from oelm.models.tokenizer_folder import TOKENIZER_FILE, converted

UNKNOWN = ("[UNK]", "<unk>")
SMALLEST_TEXT = 4  # tokens of each text that must fit beside the special ones
Texts = tuple[str, ...]  # one or two


class Encoded(NamedTuple):
    """Some examples: all their ids, and for each its length, where its second text begins, whether it was cut."""

    ids: np.ndarray
    lengths: np.ndarray
    seconds: np.ndarray
    truncated: np.ndarray
    unknown: int  # tokens that stand for what the vocabulary lacks


@dataclass(frozen=True)
class EncoderTokenizer:
    encoder: EncoderFolder
    model: Any  # tokenizers.Tokenizer
    files: dict[str, bytes]  # as they are stored beside the data

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.files[TOKENIZER_FILE]).hexdigest()

    @property
    def file_bytes(self) -> int:
        return sum(map(len, self.files.values()))

    @property
    def unknown_ids(self) -> list[int]:
        numbers = map(self.model.token_to_id, UNKNOWN)
        return [number for number in numbers if number is not None]

    def limited_to(self, max_length: int, *, pairs: bool) -> EncoderTokenizer:
        """Cut examples longer than this, the longer text first; padding is left to the batches."""
        special = self.model.num_special_tokens_to_add(pairs)
        if not special:
            raise UserError(f"{self.encoder.folder}: its tokenizer adds no special tokens; an encoder needs them")
        needed, longest = special + SMALLEST_TEXT * (1 + pairs), self.encoder.longest_input
        if not needed <= max_length <= longest:
            raise UserError(f"max-length {max_length}: this encoder and task take {needed} to {longest} tokens")
        self.model.no_padding()
        self.model.enable_truncation(max_length, strategy="longest_first")
        return self

    def encode(self, examples: Sequence[Texts]) -> Encoded:
        inputs = [texts[0] if len(texts) == 1 else texts for texts in examples]
        encodings = self.model.encode_batch_fast(inputs)  # no places in the text
        lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
        ids = np.fromiter((number for each in encodings for number in each.ids), np.uint32, lengths.sum())
        encoded = Encoded(
            ids=ids,
            lengths=lengths,
            seconds=np.fromiter(map(second_start, encodings), np.int32, len(encodings)),
            truncated=np.fromiter((bool(each.overflowing) for each in encodings), bool, len(encodings)),
            unknown=int(np.isin(ids, self.unknown_ids).sum()),
        )
        self._check(encodings, encoded)
        return encoded

    def _check(self, encodings: list[Any], encoded: Encoded) -> None:
        sizes = self.encoder.sizes
        if len(encoded.ids) and encoded.ids.max() >= sizes["vocabulary"]:
            raise UserError(
                f"{self.encoder.folder}: its tokenizer makes token {encoded.ids.max()}, "
                f"but its config.json has a vocabulary of {sizes['vocabulary']}"
            )
        if sizes["token_types"] < 2:
            return
        for encoding, second in zip(encodings, encoded.seconds, strict=True):
            if sum(encoding.type_ids) != len(encoding) - second:
                raise UserError(
                    f"{self.encoder.folder}: its tokenizer does not mark the second text by segment 1, "
                    "as an encoder with token types needs it"
                )


def second_start(encoding: Any) -> int:
    """After the special tokens between the texts; the example's length if there is one text."""
    length = len(encoding)
    if encoding.n_sequences < 2:
        return length
    sequences = encoding.sequence_ids
    return sequences.index(1) if 1 in sequences else length - 1  # a text without a token: only its end is left


def encoder_tokenizer(encoder: EncoderFolder) -> EncoderTokenizer:
    folder = encoder.folder
    files = {name: (folder / name).read_bytes() for name in TOKENIZER_FILES if (folder / name).is_file()}
    if TOKENIZER_FILE not in files:
        files[TOKENIZER_FILE] = converted(folder)
    from tokenizers import Tokenizer

    try:
        model = Tokenizer.from_str(files[TOKENIZER_FILE].decode())
    except Exception as error:  # the library raises bare Exception
        raise UserError(f"{folder / TOKENIZER_FILE}: not readable as a tokenizer ({first_line(error)})") from error
    return EncoderTokenizer(encoder, model, files)
