"""Tiny runs for fault tests: their command lines, and what their directories hold, read without torch."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from array import array
from pathlib import Path

from oelm.run.directory import RunDirectory, check_whole, checkpoint_step
from warm import Ended

VOCABULARY = 64
TINY = {
    "vocabulary": VOCABULARY,
    "seq_len": 16,
    "d_model": 16,
    "num_layers": 2,
    "num_heads": 2,
    "dropout": 0.1,
    "batch_size": 4,
    "training.steps": 40,
    "checkpoint_every": 7,
    "validate_every": 5,
    "validation_sequences": 8,
    "threads": 1,
    "compile": "off",
}


def write_tokens(folder: Path, *, train: int = 4000, val: int = 800, seed: int = 0) -> Path:
    """A bare folder: train.bin and val.bin, 16-bit ids below the vocabulary, with something to learn."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    for name, count in (("train", train), ("val", val)):
        tokens = array("H", [draw.randrange(VOCABULARY)])
        while len(tokens) < count:
            tokens.append((tokens[-1] * 5 + draw.randrange(4)) % VOCABULARY)
        (folder / f"{name}.bin").write_bytes(tokens.tobytes())
    return folder


def training(out: Path, data: Path, *, arm: str = "frozen_head_orthogonal", **changes: object) -> list[str]:
    """The words after `oelm`. `changes` are --set pairs; None leaves one out."""
    pairs = {key.replace("__", "."): value for key, value in (TINY | changes).items() if value is not None}
    words = ["train", "--arm", arm, "--data", str(data), "--out", str(out)]
    return words + [word for key, value in pairs.items() for word in ("--set", f"{key}={value}")]


# ---- What is in a run directory ------------------------------------------------------------------------------------


def stored_tensors(file: Path) -> dict[str, str]:
    """Type, shape and SHA-256 of every tensor of a safetensors file, and its metadata."""
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    found = {"metadata": json.dumps(header.pop("__metadata__", {}), sort_keys=True)}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        found[name] = f"{entry['dtype']} {entry['shape']} {hashlib.sha256(data[first:last]).hexdigest()}"
    return found


def everything_stored(run: Path) -> dict[str, dict[str, str]]:
    """Every tensor of the last checkpoint and of the best model."""
    last = RunDirectory(run).stored_checkpoints()[-1]
    files = last / "model.safetensors", last / "optimizer.safetensors", run / "best" / "model.safetensors"
    return {f"{file.parent.name}/{file.name}": stored_tensors(file) for file in files}


def losses(run: Path) -> list[tuple]:
    """What the metrics say apart from the clock."""
    clocks = ("seconds", "validation_seconds")
    return [
        tuple(sorted((key, value) for key, value in record.items() if key not in clocks))
        for record in RunDirectory(run).metrics()
    ]


def steps_recorded(run: Path) -> int:
    """The last step in the metric stream, read while it grows."""
    records = RunDirectory(run).metrics()
    return records[-1]["step"] if records else 0


def leftovers(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run)) for path in run.rglob(".*"))


def state(run: Path) -> str | None:
    return (RunDirectory(run).status() or {}).get("state")


def assert_equal_runs(run: Path, reference: Path) -> None:
    """As if nothing had happened: bit-equal, finished, with nothing left behind."""
    assert state(run) == "finished"
    assert everything_stored(run) == everything_stored(reference)
    assert losses(run) == losses(reference)
    assert leftovers(run) == []


def assert_refused(ended: Ended, *said: str, code: int = 2) -> None:
    """In words of ours, not in a traceback."""
    assert ended.code == code, ended.text
    assert "Traceback" not in ended.text
    for each in said:
        assert each in ended.err, ended.text


def whole_steps(run: Path) -> list[int]:
    """Of the stored checkpoints, each looked through."""
    stored = RunDirectory(run).stored_checkpoints()
    for folder in stored:
        check_whole(folder)
    return [checkpoint_step(folder) for folder in stored]


def newest(run: Path) -> Path:
    return RunDirectory(run).stored_checkpoints()[-1]


def reseal(checkpoint: Path) -> None:
    """Make the manifest agree with altered files, as someone with ill intent would."""
    manifest_file = checkpoint / "manifest.json"
    manifest = json.loads(manifest_file.read_text())
    for name in manifest["files"]:
        content = (checkpoint / name).read_bytes()
        manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest_file.write_text(json.dumps(manifest))
