"""What may be read from a bench: sealed, with the types it should have, and no ratio surer than its control."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from oelm.core.intervals import mean_and_half_width
from oelm.storage.files import Damaged, digest_of
from oelm.study.bench import BENCH_FILE, Bench, Ratio, smallest_ratio, stored_bench
from stored_runs import store_bench

TIMES = {"trained": [0.1] * 8, "frozen": [0.09] * 8}


def logarithms(*, mean: float, deviation: float, blocks: int = 8) -> list[float]:
    drawn = np.random.default_rng(3).normal(size=blocks)
    return list(mean + deviation * (drawn - drawn.mean()) / drawn.std(ddof=1))


def bench_with(frozen: list[float], twin: list[float]) -> Bench:
    """From logarithms of the ratios to the baseline."""
    seconds = {"trained": [1.0] * len(twin), "frozen": [math.exp(each) for each in frozen]}
    return Bench("trained", seconds, [math.exp(each) for each in twin], ((),) * len(twin))


# ---- Intervals -----------------------------------------------------------------------------------------------------


def test_no_interval_is_narrower_than_the_control_leaves_open():
    twin = logarithms(mean=-0.01, deviation=0.02)
    exact = bench_with(logarithms(mean=-0.03, deviation=1e-4), twin).ratio("frozen", "trained")
    floor = 0.01 + mean_and_half_width(twin)[1]
    assert math.log(exact.middle) == pytest.approx(-0.03)
    assert math.log(exact.high) + 0.03 == pytest.approx(floor)
    wide = logarithms(mean=-0.03, deviation=0.2)
    assert math.log(bench_with(wide, twin).ratio("frozen", "trained").high) + 0.03 == pytest.approx(
        mean_and_half_width(wide)[1]
    )


def test_disturbed_blocks_count_for_nothing():
    frozen, disturbed = [-0.05] * 8 + [3.0] * 2, ((),) * 8 + (("others",),) * 2
    seconds = {"trained": [1.0] * 10, "frozen": [math.exp(each) for each in frozen]}
    bench = Bench("trained", seconds, [1.0] * 10, disturbed)
    assert bench.ratio("frozen", "trained").middle == pytest.approx(math.exp(-0.05))
    assert (bench.ratio("frozen", "trained").blocks, bench.is_busy) == (8, False)
    assert Bench("trained", seconds, [1.0] * 10, (*disturbed[1:], ("steal",))).is_busy


def test_a_step_cannot_gain_more_than_its_component_that_gains_most():
    smallest = smallest_ratio({"products": 97.0, "optimizer": 9.0}, {"products": 100.0, "optimizer": 10.0})
    assert smallest == 0.9
    assert Ratio(0.85, 0.82, 0.88, 8, smallest).is_implausible
    assert not Ratio(0.85, 0.79, 0.91, 8, smallest).is_implausible  # within its interval


# ---- The file ------------------------------------------------------------------------------------------------------


def resealed(tree: dict) -> dict:
    content = {key: value for key, value in tree.items() if key != "seal"}
    return content | {"seal": digest_of(content)}


def changed_bench(folder, change, *, seal=True) -> Bench | Damaged | None:
    store_bench(folder, baseline="trained", seconds=TIMES)
    tree = json.loads((folder / BENCH_FILE).read_text())
    change(tree)
    (folder / BENCH_FILE).write_text(json.dumps(resealed(tree) if seal else tree))
    return stored_bench(folder)


def test_a_sealed_bench_is_read(tmp_path):
    bench = changed_bench(tmp_path, lambda tree: None, seal=False)
    assert bench.seconds == TIMES
    assert (bench.blocks, bench.rebuilt) == (8, True)
    assert stored_bench(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree["seconds"]["frozen"].__setitem__(3, 0.08),
        lambda tree: tree["blocks"][0].update(disturbed=["others"]),
        lambda tree: tree.pop("seal"),
    ],
)
def test_an_edited_bench_is_damaged(tmp_path, change):
    found = changed_bench(tmp_path, change, seal=False)
    assert isinstance(found, Damaged)
    assert str(found).startswith(f"{tmp_path / BENCH_FILE}: damaged: ")


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: tree.update(seconds={}),
        lambda tree: tree["seconds"].update(frozen=["0.1"] * 8),
        lambda tree: tree["seconds"].update(frozen=[0.1] * 7),
        lambda tree: tree["seconds"].update(frozen=[-0.1] * 8),
        lambda tree: tree.update(twin=[]),
        lambda tree: tree.update(blocks=[{}] * 8),
        lambda tree: tree.update(baseline="nobody"),
        lambda tree: tree["work"]["frozen"].pop("memory"),
        lambda tree: tree.update(format_version=4),
        lambda tree: tree["runs"].pop("frozen"),
        lambda tree: tree["runs"]["frozen"].update(format_version=99),
        lambda tree: tree["runs"]["frozen"]["model"].update(d_model="wide"),
        lambda tree: tree.update(execution=None),
        lambda tree: tree.pop("format_version"),
    ],
)
def test_a_bench_of_wrong_parts_is_damaged_although_its_seal_is_right(tmp_path, change):
    assert isinstance(changed_bench(tmp_path, change), Damaged)


@pytest.mark.parametrize("text", ["", "[]", '{"seconds": NaN}'])
def test_whatever_is_in_its_place_is_damaged_and_nothing_worse(tmp_path, text):
    (tmp_path / BENCH_FILE).write_text(text)
    assert isinstance(stored_bench(tmp_path), Damaged)
