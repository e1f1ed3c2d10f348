"""Bytes of text files to UTF-8: most are, others are named with --encoding, and an error guesses which.

Whoever cuts text into documents or lines sees UTF-8 alone, whatever the file is in.
"""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from oelm.machine.errors import UserError

UTF8 = "utf-8"
BLOCK_BYTES = 1 << 20
# Tried on what is not UTF-8, in this order; the last fits nearly anything.
LIKELY = {"gbk": "GBK", "big5": "Big5", "shift_jis": "Shift JIS", "euc_kr": "EUC-KR", "cp1252": "Windows-1252"}
WESTERN = ("cp1252", "iso8859-1", "iso8859-15")  # they give nearly any bytes some text
SAMPLE_BYTES, ENOUGH_CHARACTERS = 1 << 16, 10
MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def checked_encoding(name: str | None) -> str | None:
    """Its usual name; None stands for UTF-8."""
    if name is None:
        return None
    try:
        codec = codecs.lookup(name)
        "a".encode(name)
        codecs.getincrementaldecoder(name)
    except (LookupError, UnicodeError, ValueError) as error:
        raise UserError(f"--encoding {name}: unknown; for example {', '.join(LIKELY)}, gb18030, utf-16") from error
    return None if codec.name in (UTF8, "utf-8-sig") else codec.name


def blocks(file: Path, encoding: str | None = None) -> Iterator[bytes]:
    """The whole file as UTF-8, some at a time. A file that is UTF-8 itself is not looked into."""
    return _raw_blocks(file) if encoding is None else _converted(file, encoding)


def _raw_blocks(file: Path) -> Iterator[bytes]:
    with open(file, "rb") as stream:
        while block := stream.read(BLOCK_BYTES):
            yield block


def _converted(file: Path, encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()
    end = 0
    for block in chain(_raw_blocks(file), [b""]):
        pending = len(decoder.getstate()[0])
        try:
            yield decoder.decode(block, final=not block).encode()
        except UnicodeError as error:
            at = end - pending + getattr(error, "start", 0)
            if not block:
                raise UserError(f"{file}: ends inside a character of {encoding}, at byte {at}: truncated?") from error
            guess = advice(file, next(_raw_blocks(file)), refused=encoding)
            raise UserError(f"{file}: not {encoding} at byte {at}; {guess}") from error
        end += len(block)


def text_lines(file: Path, encoding: str | None = None) -> Iterator[tuple[int, int, str]]:
    """Number, bytes and text of every line, with its line end."""
    rest, number = b"", 0
    for block in blocks(file, encoding):
        *whole, rest = (rest + block).split(b"\n")
        for raw in whole:
            number += 1
            yield number, len(raw) + 1, _decoded_line(file, raw + b"\n", number)
    if rest:
        yield number + 1, len(rest), _decoded_line(file, rest, number + 1)


def _decoded_line(file: Path, raw: bytes, number: int) -> str:
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        where = f"{file}, line {number}: not UTF-8 at byte {error.start + 1} of the line"
        raise UserError(f"{where}; {advice(file, raw)}") from error


def advice(file: Path, raw: bytes, *, refused: str | None = None) -> str:
    """What to do about bytes of a file that are not UTF-8, or not in the encoding that was named."""
    decoder, ascii_alone = codecs.getincrementaldecoder(UTF8)(), True
    with contextlib.suppress(UnicodeDecodeError):
        for block in _raw_blocks(file):
            ascii_alone &= decoder.decode(block).isascii()
        if decoder.getstate()[0] and not ascii_alone:
            return "the file is UTF-8 and ends inside a character: truncated?"
    with open(file, "rb") as stream:
        mark = stream.read(2)
    likely = [*([UTF8] if refused else []), *(["gb18030"] if refused == "gbk" else []), *LIKELY]
    fits = MARKS.get(mark) or next((name for name in likely if name != refused and _fits(raw, name)), None)
    if fits in (None, refused):
        return "give its encoding with --encoding, or convert the file to UTF-8"
    option = "leave --encoding out" if fits == UTF8 else f"--encoding {fits}"
    return f"if it is {LIKELY.get(fits, fits.upper())}: {option}"


def doubt(file: Path, encoding: str | None) -> str | None:
    """What a file looks like that is read in a Western encoding: there two characters beyond ASCII hardly ever follow
    each other, and in Chinese or UTF-8 they always do."""
    if checked_encoding(encoding) not in WESTERN:
        return None
    raw = next(_raw_blocks(file), b"")[:SAMPLE_BYTES]
    if sum(byte > 0x7F for byte in raw) < 2 * ENOUGH_CHARACTERS:
        return None
    return next((name for name in (UTF8, "gbk") if _fits(raw, name)), None)


def _fits(raw: bytes, encoding: str) -> bool:
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(raw)  # the last character may be cut
    except UnicodeError:
        return False
    others = [character for character in text if not character.isascii()]
    if encoding not in ("gbk", "gb18030"):
        return bool(others)
    # Bytes of Big5 or Shift JIS can be read as GBK too, as characters that hardly occur: most are not of GB 2312.
    common = sum(bool(character.encode("gb2312", errors="ignore")) for character in others)
    return bool(others) and common >= 0.9 * len(others)
