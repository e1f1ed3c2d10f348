"""The first difference between what two sides left in a folder, in plain words: which file, which key, tensor or line.

Everything is compared: names of files, bytes, every tensor bit for bit, every number of every JSON file. What two runs
of the same code do not share either (clocks, processes, the digest of the sources) is left out here; what differs on
purpose stands in intended.py, with its reason.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import zip_longest
from pathlib import Path
from typing import Any

from intended import INTENDED, Intended

CLOSE = 1e-12  # between numbers of a report
LONGEST = 160  # of a value that is shown

# Of every file: what two runs of one source tree do not share. File pattern -> keys, by their last parts.
OF_THE_CLOCK = {
    "status.json": ("boot_id", "ended", "host", "pid", "pid_started", "seconds", "start", "started", "updated"),
    "environment.json": ("commit", "dirty", "source_digest", "gpu_driver"),
    "experiment_result.json": (
        "training_seconds", "validation_seconds", "wall_seconds", "mean_step_seconds", "tokens_per_second",
        "peak_memory_bytes",
    ),
    "metrics.jsonl": ("seconds", "validation_seconds"),
    "state.json": ("seconds", "training_seconds", "validation_seconds", "wall_seconds", "step_seconds"),
    "manifest.json": ("sha256", "bytes", "created", "oelm"),
    "seal.json": ("sha256", "manifest_sha256", "seal", "bytes", "started"),
    "choices.json": ("chosen", "created", "seal", "sha256", "decided"),
    "looks.json": ("taken", "created", "seal", "sha256"),
    "registration.json": ("commit", "dirty", "source_digest", "registered", "seal"),
    "verify.out": ("tolerance", "other_machine"),  # of a run by other sources; its state says whether bits are equal
    "archive.json": ("created", "seal", "sha256", "bytes", "oelm", "archived"),
}  # fmt: skip
# Nothing of these is a result.
SKIPPED = ("lock.json", "slot.json", "timing_stats.json", "*.rank1.out", "*.rank1.err", "controller.json", "*.lock")
TEXTS = ("*.out", "*.err", "*.log", "*.txt", "*.md", "*.csv", "*.tex", "*.html", "*.svg", "*.yaml", "*.json", "*.jsonl")
CAUSES_FIRST = (
    "*.exit", "*config.json", "*settings.json", "*parameters.json", "*metrics.jsonl", "*/checkpoints/*.safetensors",
    "*.safetensors", "*experiment_result.json", "*.csv", "*.md", "*.tex", "*analysis_results.json", "*.html", "*",
)  # fmt: skip
# Of what commands print: durations, speeds, moments, memory.
CLOCKS_IN_TEXT = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00| UTC)?|\b\d\d:\d\d:\d\d\b"
    r"|[\d.,]+ (?:ms|s|min|minutes?|seconds?|h|hours?|MiB|GiB|tokens/s|steps/s|ms/step|s/step)(?:/\w+)?(?![\w])"
    r"|\bpid \d+|\b\d+% CPU"
)
# What a command prints of its progress comes when a second is over, not when a step is; the log of a run has them all.
LINES_OF_THE_CLOCK = re.compile(r"^(?:step \d+/|\[\d+/\d+\]|.*it/s\]|.*\bETA ).*\n", re.MULTILINE)


@dataclass(frozen=True)
class Difference:
    file: str
    words: str

    def __str__(self) -> str:
        return f"{self.file}: {self.words}"


def differences(
    case: str, old: Path, new: Path, *, ignored: Iterable[str] = (), but: Iterable[str] = ()
) -> Iterator[Difference]:
    """The first one of every file, causes first; `ignored` are patterns of files, `but` patterns of keys."""
    allowed = [Intended("this case is about it", keys=tuple(but))]
    old_files, new_files = (_files(each) for each in (old, new))
    for name in sorted(old_files | new_files, key=_causes_first):
        if any(fnmatch(name, pattern) or fnmatch(name.rsplit("/", 1)[-1], pattern) for pattern in (*SKIPPED, *ignored)):
            continue
        rules = [rule for rule in (*INTENDED, *allowed) if rule.is_about(case, name)]
        if any(rule.whole_file for rule in rules):
            continue
        if name not in old_files or name not in new_files:
            yield Difference(name, f"only the {'old' if name in old_files else 'new'} side has this file")
            continue
        words = _of_a_file(old / name, new / name, name, rules, roots=(old, new), case=case)
        if words is not None:
            yield Difference(name, words)


def _causes_first(name: str) -> tuple[int, str]:
    """What a run is, what it measured step by step, what it weighs; what it says of itself last."""
    return next(place for place, pattern in enumerate(CAUSES_FIRST) if fnmatch(name, pattern)), name


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def _of_a_file(
    old: Path, new: Path, name: str, rules: list[Intended], *, roots: tuple[Path, Path], case: str
) -> str | None:
    last = name.rsplit("/", 1)[-1]
    if old.read_bytes() == new.read_bytes():
        return None
    if name.endswith(".safetensors"):
        return of_tensors(old, new, close=_closeness(rules))
    if name.endswith(".zip"):
        return _of_archives(old, new, rules)
    if not any(fnmatch(last, pattern) for pattern in TEXTS):
        return f"{_bytes_apart(old.read_bytes(), new.read_bytes())}"
    texts = [
        _common(path.read_text(encoding="utf-8", errors="replace"), root)
        for path, root in zip((old, new), roots, strict=True)
    ]
    return _of_texts(texts, last, rules)


def _of_texts(texts: list[str], last: str, rules: list[Intended]) -> str | None:
    if last.endswith(".jsonl"):
        return _of_lines_of_json(*texts, last, rules)
    if last.endswith(".json") or (last.endswith(".out") and all(text.lstrip().startswith("{") for text in texts)):
        try:
            trees = [json.loads(text) for text in texts]
        except ValueError:
            return _of_lines(*texts, rules)
        return _of_trees(*trees, last, rules, close=0.0 if last != "analysis_results.json" else CLOSE)
    if last.endswith(".csv"):
        left_out = {column for rule in rules for column in rule.columns}
        texts = [_without_columns(text, left_out) for text in texts]
    if last.endswith((".out", ".err")):
        texts = [LINES_OF_THE_CLOCK.sub("", text) for text in texts]
    if last.endswith((".out", ".err", ".log")):
        texts = [CLOCKS_IN_TEXT.sub("<time>", text) for text in texts]
    return _of_lines(*texts, rules)


def _without_columns(text: str, names: set[str]) -> str:
    if not names:
        return text
    rows = list(csv.reader(io.StringIO(text, newline=""))) or [[]]
    kept = [place for place, name in enumerate(rows[0]) if name not in names]
    return "\n".join(repr([row[place] for place in kept if place < len(row)]) for row in rows)


def _common(text: str, root: Path) -> str:
    """Without the folder of its side, which is no difference: everything two sides do is below folders of one name."""
    side = next((each for each in (root, *root.parents) if each.name in ("old", "new")), root)
    return text.replace(str(side), "SIDE")


# ---- Tensors -------------------------------------------------------------------------------------------------------


def tensors_in(file: Path) -> tuple[dict[str, tuple[str, list[int], bytes]], dict[str, str]]:
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    metadata = header.pop("__metadata__", {})
    found = {}
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        found[name] = (entry["dtype"], entry["shape"], data[first:end])
    return found, metadata


def of_tensors(old: Path, new: Path, *, close: float = 0.0) -> str | None:
    (before, facts), (after, new_facts) = tensors_in(old), tensors_in(new)
    for name in sorted(before.keys() | after.keys()):
        if name not in before or name not in after:
            return f"only the {'old' if name in before else 'new'} side has the tensor {name}"
    for name, (kind, shape, values) in before.items():
        new_kind, new_shape, new_values = after[name]
        if (kind, shape) != (new_kind, new_shape):
            return f"the tensor {name} is {kind} {shape} in the old and {new_kind} {new_shape} in the new one"
        if values != new_values and not _all_close(values, new_values, kind, close):
            return f"the tensor {name} differs: {_elements_apart(values, new_values, kind)}"
    return _of_trees(facts, new_facts, "metadata", [], close=0.0)


def _all_close(old: bytes, new: bytes, kind: str, close: float) -> bool:
    if not close or kind != "F32":
        return False
    pairs = zip(*(struct.unpack(f"<{len(each) // 4}f", each) for each in (old, new)), strict=True)
    return all(math.isclose(before, after, rel_tol=close, abs_tol=close) for before, after in pairs)


def _closeness(rules: list[Intended]) -> float:
    return max((rule.close for rule in rules), default=0.0)


_WIDTHS = {"F64": ("d", 8), "F32": ("f", 4), "I64": ("q", 8), "I32": ("i", 4)}


def _elements_apart(old: bytes, new: bytes, kind: str) -> str:
    letter, width = _WIDTHS.get(kind, ("H", 2))
    count = len(old) // width
    pairs = list(zip(struct.unpack(f"<{count}{letter}", old), struct.unpack(f"<{count}{letter}", new), strict=True))
    apart = [place for place, (before, after) in enumerate(pairs) if before != after]
    if not apart:
        return "in the sign of a zero, or in a value that is no number"
    before, after = pairs[apart[0]]
    return f"{len(apart)} of {count} elements, first element {apart[0]}: {before!r} before, {after!r} now"


# ---- JSON ----------------------------------------------------------------------------------------------------------


def _of_lines_of_json(old: str, new: str, last: str, rules: list[Intended]) -> str | None:
    for number, (before, after) in enumerate(zip_longest(old.splitlines(), new.splitlines()), 1):
        if before is None or after is None:
            return f"line {number} is only on the {'old' if after is None else 'new'} side: {_short(before or after)}"
        if words := _of_trees(json.loads(before), json.loads(after), last, rules, close=0.0):
            return f"line {number}: {words}"
    return None


def _of_trees(old: Any, new: Any, last: str, rules: list[Intended], *, close: float) -> str | None:
    close = max(close, _closeness(rules))
    clock = {key for pattern, keys in OF_THE_CLOCK.items() if fnmatch(last, pattern) for key in keys}
    return next(_apart(old, new, "", clock, rules, close), None)


def _apart(old: Any, new: Any, key: str, clock: set[str], rules: list[Intended], close: float) -> Iterator[str]:
    if key.rsplit(".", 1)[-1] in clock or any(rule.covers_key(key) for rule in rules):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            inner = f"{key}.{name}" if key else str(name)
            if name in old and name in new:
                yield from _apart(old[name], new[name], inner, clock, rules, close)
            elif name not in clock and not any(rule.covers_key(inner) for rule in rules):
                side, value = ("old", old[name]) if name in old else ("new", new[name])
                yield f"only the {side} side has the key {inner}: {_short(value)}"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _apart(before, after, f"{key}[{place}]", clock, rules, close)
    elif not _equal(old, new, close) and not _equal_when_intended(old, new, rules):
        yield f"{key or 'its value'} is {_short(old)} in the old and {_short(new)} in the new one"


def _equal(old: Any, new: Any, close: float) -> bool:
    if isinstance(old, float) and isinstance(new, float):
        if math.isnan(old) or math.isnan(new):
            return math.isnan(old) and math.isnan(new)
        return old == new if not close else math.isclose(old, new, rel_tol=close, abs_tol=close)
    return type(old) is type(new) and old == new


def _equal_when_intended(old: Any, new: Any, rules: list[Intended]) -> bool:
    if not (isinstance(old, str) and isinstance(new, str)):
        return False
    old, new = (_without_intended(text, rules) for text in (old, new))
    return CLOCKS_IN_TEXT.sub("<time>", old) == CLOCKS_IN_TEXT.sub("<time>", new)


# ---- Text ----------------------------------------------------------------------------------------------------------


def _without_intended(text: str, rules: list[Intended]) -> str:
    for rule in rules:
        text = rule.without(text)
    return text


def _of_lines(old: str, new: str, rules: list[Intended]) -> str | None:
    old, new = (_without_intended(text, rules) for text in (old, new))
    if old == new:
        return None
    for number, (before, after) in enumerate(zip_longest(old.split("\n"), new.split("\n")), 1):
        if before is None or after is None:
            return f"line {number} is only on the {'old' if after is None else 'new'} side: {_short(before or after)}"
        if before != after:
            return f"line {number}: {_around(before, after)}"
    return "they end in different line ends"


def _around(before: str, after: str) -> str:
    """What stands where two lines part."""
    place = next(
        (place for place, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    first = max(0, place - 60)
    end = first + LONGEST
    shown = [f"{'…' * (first > 0)}{line[first:end]}{'…' * (len(line) > end)}" for line in (before, after)]
    return f"{shown[0]!r} in the old and {shown[1]!r} in the new one"


def _bytes_apart(old: bytes, new: bytes) -> str:
    place = next((place for place, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    digests = [hashlib.sha256(each).hexdigest()[:12] for each in (old, new)]
    return f"byte {place} differs ({len(old)} bytes, {digests[0]}, before; {len(new)} bytes, {digests[1]}, now)"


def _of_archives(old: Path, new: Path, rules: list[Intended]) -> str | None:
    """What they hold; how it is packed is no difference."""
    with zipfile.ZipFile(old) as before, zipfile.ZipFile(new) as after:
        names, new_names = set(before.namelist()), set(after.namelist())
        for name in sorted(names | new_names):
            if name not in names or name not in new_names:
                return f"only the {'old' if name in names else 'new'} archive has {name}"
            contents = [each.read(name) for each in (before, after)]
            if contents[0] != contents[1]:
                last = name.rsplit("/", 1)[-1]
                words = _of_texts([each.decode(errors="replace") for each in contents], last, rules)
                if words is not None:
                    return f"{name}: {words}"
    return None


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
