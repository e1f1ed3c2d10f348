"""What a run says of itself in several places must be one thing: result, metrics, seal, checkpoint and parameters.

`sealing.end_of` has compared result, config, metrics and predictions; here the last checkpoint is heard too.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from oelm.core.parts import with_roles_of_now
from oelm.run.directory import MANIFEST, RunDirectory
from oelm.run.sealing import read_seal
from oelm.storage.files import Damaged, sha256_of

_SAME = {"steps": "step", "train_loss": "last_train_loss", "best_val_loss": "best_val_loss", "best_step": "best_step"}


def check_sealed_checkpoint(directory: RunDirectory, checkpoint: Path) -> None:
    """The seal binds the manifest of the last checkpoint, which binds its files."""
    sealed = read_seal(directory)["checkpoint"]
    if sealed is None or sealed["name"] != checkpoint.name:
        raise Damaged(directory.seal_file, f"is not a seal over {checkpoint.name}")
    if sha256_of(checkpoint / MANIFEST) != sealed["manifest_sha256"]:
        raise Damaged(checkpoint / MANIFEST, "changed since the run was sealed")


def check_progress(directory: RunDirectory, result: dict[str, Any], progress: dict[str, Any]) -> None:
    """The last checkpoint was written after the last step, the result soon after it."""
    file = directory.result_file
    for key, stored in _SAME.items():
        if result.get(key) != progress[stored]:
            raise Damaged(file, f"{key} is {result.get(key)!r}, but the last checkpoint says {progress[stored]!r}")
    said, clipped = result.get("clipped_fraction"), progress["clipped_steps"] / progress["step"]
    if said is None or not math.isclose(said, clipped, rel_tol=1e-12):
        raise Damaged(file, f"clipped_fraction is {said!r}, but the last checkpoint says {clipped}")
    for key in ("train_loss", "val_loss"):
        record, value = directory.last_metrics(key) or {}, progress[f"last_{key}"]
        if (record.get("step"), record.get(key)) != (progress["step"], value):
            raise Damaged(
                directory.metrics_file,
                f"ends with {key} {record.get(key)!r} at step {record.get('step')!r}, but the last checkpoint says "
                f"{value!r} at step {progress['step']}",
            )


def check_parameters(directory: RunDirectory, stored: dict[str, Any], counted: dict[str, Any]) -> None:
    """What is stored of the parameters is what the checkpoint's model has, to the digest of its frozen weights."""
    stored = stored | {"parts": with_roles_of_now(stored.get("parts", []))}
    for key in sorted(stored.keys() & counted.keys()):
        if stored[key] != counted[key]:
            raise Damaged(directory.parameters_file, f"{key} is not that of the last checkpoint")
