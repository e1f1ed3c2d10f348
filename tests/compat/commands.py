"""The originals' scripts as a user starts them: real processes, in whatever folder the test stands in."""

from __future__ import annotations

import subprocess

from small_runs import REPOSITORY, warm_script

SCRIPTS = REPOSITORY / "scripts"
TRAIN, TRAIN_V2, DIAGNOSE = (
    SCRIPTS / "02-训练脚本" / "train.py",
    SCRIPTS / "train_v2.py",
    SCRIPTS / "diagnose_freeze.py",
)
SMALL = ["--d_model", "32", "--num_layers", "2", "--num_heads", "4", "--seq_len", "16", "--batch_size", "4"]
QUIET = ["--set", "vocabulary=64", "--set", "threads=1"]


def script(path, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return warm_script(str(path), *arguments, timeout=timeout)
