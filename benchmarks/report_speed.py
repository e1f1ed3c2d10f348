"""Analysis and report of 1,000 finished runs, both languages and all formats, on one core: the aim is 20 s.

The runs are invented and stored first, which is not timed. Prints wall and processor seconds, the wall seconds last;
on a busy machine the processor's are the ones to look at.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

ARMS = (
    "trained", "trained_scaled_normal", "trained_orthogonal", "trained_head_orthogonal", "frozen_orthogonal",
    "frozen_head_orthogonal", "frozen_normal", "frozen_scaled_normal", "frozen_half", "late_unfreeze",
)  # fmt: skip
SEEDS, GRID, TUNING_SEEDS = 80, [1e-3, 2e-3, 4e-3, 8e-3], 5
AIM_SECONDS = 20.0


def study():
    from oelm.study.reading import study_of

    pairs = [(arm, "trained") for arm in ARMS[1:]]
    hypotheses = [
        {
            "name": f"H{number}", "claim": f"{treatment} costs at most 5 %", "kind": "not_worse", "margin_percent": 5.0,
            "treatment": treatment, "control": control, "varies": ["start", "scale", "moves", "share"],
        }
        for number, (treatment, control) in enumerate(pairs, start=1)
    ]  # fmt: skip
    tree = {
        "name": "a-thousand-runs",
        "question": "How long does a report take?",
        "base": {"preset": "tiny", "model": {"vocabulary": 64}, "training": {"steps": 2000}},
        "arms": list(ARMS),
        "seeds": list(range(SEEDS)),
        "tuning": {"grid": {"learning_rate": GRID}, "seeds": list(range(1000, 1000 + TUNING_SEEDS)), "extend": 0},
        "hypotheses": hypotheses,
    }
    return study_of(tree, name="benchmark")


def invented_loss(arm: str, seed: int, stage: str, point: object) -> float:
    return 2.0 + 0.01 * ARMS.index(arm) + random.Random(f"{arm} {seed} {stage} {point}").gauss(0, 0.01)


def main() -> None:
    from stored_runs import store_study

    declared = study()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store_study(declared, folder / "runs", invented_loss)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        wall, processor = time.perf_counter(), time.process_time()
        runs = report(declared, folder)
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
    print(f"{runs} runs, processor: {processor:.1f} s")
    print(f"analysis and report (aim {AIM_SECONDS:.0f} s): {wall:.1f} s")


def report(declared, folder: Path) -> int:
    """What `oelm report` does, its imports included."""
    from oelm.analysis.summary import findings_of
    from oelm.show.report import write_report
    from oelm.study.shelf import Shelf

    start = time.process_time()
    findings = findings_of(declared, Shelf(folder / "runs"))
    print(f"analysis alone, processor: {time.process_time() - start:.1f} s")
    files = write_report(findings, folder / "report")
    assert len(files.articles) >= 5
    return len(findings.plan.runs)


if __name__ == "__main__":
    main()
