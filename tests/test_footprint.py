"""The memory of a step on a GPU is known before it: the closed form is what a traced step has alive, within 15 %."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from small_runs import REPOSITORY
from warm import environment

FAKE_CUDA = REPOSITORY / "tests" / "fake_cuda"
TOLERANCE = 0.15

sys.path.insert(0, str(FAKE_CUDA))
from imaginary import built, missing  # noqa: E402 - a folder of programs, not a package
from peak_memory import cases, cases_of_two, compiled_cases  # noqa: E402

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

# Of all cases `python tests/fake_cuda/peak_memory.py` can trace, those that differ in what they keep.
QUICK = (
    {"preset": "medium-512", "arm": "trained", "examples": 8, "micro_batches": 1, "precision": "bfloat16"},
    {
        "preset": "medium-512",
        "arm": "frozen_head_orthogonal",
        "examples": 8,
        "micro_batches": 2,
        "precision": "float32",
    },
)


ARMS = ("frozen_half", "frozen_hadamard", "frozen_feed_forward", "reservoir", "frozen_orthogonal_repaired",
        "narrow_query_key_4")  # fmt: skip


def traced(folder: Path, asked: list[dict]) -> list[dict]:
    program = [sys.executable, str(FAKE_CUDA / "peak_memory.py"), str(built(folder)), json.dumps(asked)]
    done = subprocess.run(program, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def assert_close(asked: list[dict], found: list[dict]) -> None:
    for case, each in zip(asked, found, strict=True):
        assert each["estimate"] == pytest.approx(each["traced"], rel=TOLERANCE), (case, each)


def test_the_estimate_is_what_a_traced_step_has_alive(tmp_path):
    """Compiled blocks are held to what their forward pass keeps."""
    asked = [*QUICK, *(case for case in cases() if case.get("arm") in ARMS and case["precision"] == "bfloat16")]
    asked += cases_of_two()
    compiled = [next(compiled_cases())]
    *found, kept = traced(tmp_path, [*asked, *compiled])
    assert_close(asked, found)
    assert found[-1]["parts"]["exchange"] > 0.9 * found[-1]["parts"]["gradients"]  # a copy in buckets
    assert kept["parts"]["activations"] == pytest.approx(kept["kept"], rel=TOLERANCE)
    assert len({each["traced"] for each in found}) > len(found) / 2  # arms do change what is kept


@pytest.mark.trial
def test_the_same_for_every_case(tmp_path):
    asked, compiled = [*cases(), *cases_of_two()], list(compiled_cases())
    found = traced(tmp_path, [*asked, *compiled])
    assert_close(asked, found[: len(asked)])
    for each in found[len(asked) :]:
        assert each["parts"]["activations"] == pytest.approx(each["kept"], rel=TOLERANCE)
