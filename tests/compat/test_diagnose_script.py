"""diagnose_freeze.py: the frozen arm unless told otherwise; and every script's help, at once."""

from __future__ import annotations

import json
import sys

import pytest
from commands import DIAGNOSE, TRAIN, TRAIN_V2, script

from oelm.compat.diagnosis import _arm, _of_checkpoint, _parser
from oelm.machine.errors import UserError
from small_runs import finished

TINY = ["--d_model", "32", "--num_layers", "2", "--num_heads", "4", "--seq_len", "16", "--vocab_size", "101"]


def test_frozen_queries_and_keys_are_found_frozen():
    done = script(DIAGNOSE, *TINY, "--json", "--steps", "2")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["healthy"] is True
    assert found["frozen"] == 2 * 2 * 32 * 32
    frozen = {tensor["role"] for tensor in found["tensors"] if not tensor["requires_grad"]}
    assert frozen == {"query", "key"}
    assert not any(tensor["moved"] for tensor in found["tensors"] if tensor["role"] in frozen)
    up = next(tensor for tensor in found["tensors"] if tensor["name"].endswith("up.weight"))
    assert up["shape"] == [128, 32]


@pytest.mark.parametrize(
    ("model_type", "freeze_qk", "arm"),
    [
        ("gpt", None, "trained"),
        ("oelm", None, "frozen_orthogonal"),
        ("oelm", False, "trained_orthogonal"),
        ("oelm_random", None, "oelm_random"),
        ("frozen_half", None, "frozen_half"),
    ],
)
def test_types_of_both_training_scripts_are_known(model_type, freeze_qk, arm):
    assert _arm(model_type, freeze_qk) == arm


def test_what_says_the_same_twice_is_refused():
    with pytest.raises(UserError, match="--freeze_qk"):
        _arm("baseline", True)
    with pytest.raises(UserError, match="--d_model"):
        _of_checkpoint(_parser().parse_args(["--checkpoint", "runs/x", "--d_model", "64"]))


@pytest.mark.parametrize("path", [TRAIN, TRAIN_V2, DIAGNOSE], ids=lambda path: path.name)
def test_help_explains_every_flag_and_loads_no_torch(path):
    code = (
        f"import runpy, sys; sys.argv = [{str(path)!r}, '--help']\n"
        f"try:\n    runpy.run_path({str(path)!r}, run_name='__main__')\n"
        "except SystemExit as done:\n    sys.exit(done.code or ('torch' in sys.modules))"
    )
    done = finished([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    for flag in ("--model_type", "--freeze_qk" if path != TRAIN_V2 else "--dataset", "--d_model", "--seq_len"):
        assert flag in done.stdout
