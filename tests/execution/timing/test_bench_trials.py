"""How often a real bench errs: equal arms under a load that comes and goes, and a slowdown of 5 % on an idle machine.

python -m pytest -m trial tests/execution/timing -k comes_and_goes -s      # any machine: makes its own load
python -m pytest -m trial tests/execution/timing -k idle -s                # nothing else may run
"""

from __future__ import annotations

import dataclasses
import os
import time

import pytest
from artificial_load import load_that_comes_and_goes

from oelm.execution.timing import interleaved
from oelm.execution.timing.interleaved import measure
from oelm.execution.timing.workload import TimedArm
from oelm.study.bench import BENCH_FILE, Bench, bench_of
from oelm.study.reading import study_of

ARMS = ("trained", "trained_head_orthogonal")  # which differ by where they start, not by what a step computes
SIZES = {"vocabulary": 64, "seq_len": 32, "d_model": 64, "num_layers": 2, "num_heads": 4, "d_ff": 128}
SLOWDOWN = 1.05


def _measured(folder, data, *, rounds: int, steps: int, half_width: float | None) -> Bench:
    base = {
        "data": str(data),
        "model": SIZES,
        "training": {"steps": 8, "batch_size": 8},
        "execution": {"device": "cpu", "precision": "float32", "compile": "off", "threads": 1},
    }
    study = study_of({"name": "equal", "question": "?", "base": base, "arms": list(ARMS), "seeds": [0]}, name="test")
    record = measure(
        study, out=folder, rounds=rounds, steps_per_round=steps, until_half_width=half_width, say=lambda line: None
    )
    return bench_of(record, folder / BENCH_FILE)


def _is_decided(bench: Bench) -> bool:
    ratio = bench.ratio(ARMS[1], ARMS[0])
    return not bench.is_busy and ratio is not None and not ratio.low <= 1 <= ratio.high


def _with_every_block(bench: Bench) -> Bench:
    """As if no disturbance had been noticed: what then keeps equal arms apart is the design alone."""
    return dataclasses.replace(bench, disturbed=((),) * bench.blocks)


@pytest.mark.trial
def test_100_benches_of_equal_arms_under_a_load_that_comes_and_goes(tmp_path, token_folder):
    """How many are decided, and how many would be with the disturbed blocks. Loads on one core and on all."""
    decided = regardless = busy = 0
    for number in range(100):
        with load_that_comes_and_goes(number, processes=1 + number % (os.cpu_count() or 1)):
            bench = _measured(tmp_path, token_folder, rounds=16, steps=4, half_width=None)
        decided += _is_decided(bench)
        regardless += _is_decided(_with_every_block(bench))
        busy += bench.is_busy
    print(
        f"\nload that comes and goes, equal arms: decided {decided} of 100; with the disturbed blocks counted in "
        f"{regardless} of 100; machine busy {busy} of 100"
    )
    assert decided <= 5
    assert regardless <= 5


class _SlowerArm(TimedArm):
    """Computes for 5 % longer than it needs."""

    def step(self) -> float:
        began = time.perf_counter()
        super().step()
        until = began + SLOWDOWN * (time.perf_counter() - began)
        while time.perf_counter() < until:
            pass
        return time.perf_counter() - began


def _slower_second_arm(run, machine, workload) -> TimedArm:
    return (_SlowerArm if run.arm == ARMS[1] else TimedArm)(run, machine, workload)


@pytest.mark.trial
def test_20_benches_of_a_slowdown_of_a_twentieth_on_an_idle_machine(tmp_path, token_folder, monkeypatch):
    monkeypatch.setattr(interleaved, "TimedArm", _slower_second_arm)
    benches, decided = 20, 0
    for _ in range(benches):
        bench = _measured(tmp_path, token_folder, rounds=60, steps=8, half_width=0.01)
        decided += _is_decided(bench)
        ratio, control = bench.ratio(ARMS[1], ARMS[0]), bench.control
        found = f"{ratio.middle:.4f} ({ratio.low:.4f} to {ratio.high:.4f})" if ratio else "none"
        own = f"{control.middle:.4f} ({control.low:.4f} to {control.high:.4f})" if control else "none"
        print(f"{bench.blocks} blocks, {len(bench.quiet)} undisturbed: ratio {found}, control {own}", flush=True)
    print(f"idle machine, planted slowdown of 5 %: decided {decided} of {benches}")
    assert decided >= 18
