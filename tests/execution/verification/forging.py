"""Changes to a stored run by someone who makes every digest fit afterwards."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from oelm.run.directory import RunDirectory
from oelm.run.sealing import seal_run


def edit(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    tree = json.loads(file.read_text())
    change(tree)
    file.write_text(json.dumps(tree))


def last_checkpoint(run: Path) -> Path:
    return RunDirectory(run).stored_checkpoints()[-1]


def sealed_again(run: Path) -> None:
    """Manifests and seal, over the files as they are now."""
    for checkpoint in RunDirectory(run).stored_checkpoints():
        files = {
            file.name: {"bytes": file.stat().st_size, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
            for file in checkpoint.iterdir()
            if file.name != "manifest.json"
        }
        edit(checkpoint / "manifest.json", lambda tree, files=files: tree.update(files=files))
    result = json.loads((run / "experiment_result.json").read_text())
    seal_run(RunDirectory(run), "finished", step=result["steps"])


def report(run: Path, loss: float) -> None:
    """Another loss, wherever it stands, with its perplexity."""
    before = json.loads((run / "experiment_result.json").read_text())["val_loss"]
    said = {"val_loss": loss, "perplexity": math.exp(loss)}
    edit(run / "experiment_result.json", lambda tree: tree.update({key: said[key] for key in said if key in tree}))
    checkpoint = last_checkpoint(run) / "state.json"
    if json.loads(checkpoint.read_text())["progress"]["last_val_loss"] == before:  # reported is the curve's last
        edit(checkpoint, lambda tree: tree["progress"].update(last_val_loss=loss, best_val_loss=loss))
        edit(
            run / "experiment_result.json",
            lambda tree: tree.update(best_val_loss=loss, best_perplexity=math.exp(loss)),
        )
        lines = (run / "metrics.jsonl").read_text().splitlines()
        lines[-1] = json.dumps(json.loads(lines[-1]) | said)
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def change_weight(run: Path, name: str, by: float) -> None:
    file = last_checkpoint(run) / "model.safetensors"
    tensors = load_file(file)
    with torch.no_grad():
        tensors[name].view(-1)[0] += by
    save_file(tensors, file)
