"""What the loss of a step moves on a GPU besides its products, traced without one. The result comes last.

    python benchmarks/loss_traffic.py

Medium-512, 8 x 512 tokens, bfloat16, on fake tensors (tests/fake_cuda): a count of bytes, not a measurement of time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from interleaved import HERE

FAKE_CUDA = HERE.parent / "tests" / "fake_cuda"
BEFORE, BUDGET = 14.8, 4.5  # GB; the first was traced before the loss had a function of its own on GPUs

sys.path.insert(0, str(FAKE_CUDA))

from imaginary import built, missing  # noqa: E402 - beside the tests


def main() -> None:
    reason = missing()
    if reason is not None:
        print(f"loss on a GPU: not traced, {reason}")
        return
    with tempfile.TemporaryDirectory() as folder:
        library = str(built(Path(folder)))
        compiled, eager = (_traced(library, *options) for options in ((), ("--without-compiler",)))
    print(
        f"loss on a GPU, besides products, of a step at Medium-512: {compiled:.2f} GB compiled, {eager:.1f} GB without "
        f"compiler; before: {BEFORE} GB; at most {BUDGET} GB"
    )


def _traced(library: str, *options: str) -> float:
    command = [sys.executable, str(FAKE_CUDA / "loss_traffic.py"), library, *options]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(answer)["bytes"]) / 1e9


if __name__ == "__main__":
    main()
