"""Curves over seeds, and what it took to reach a target."""

import pytest

from oelm.analysis.arm_summaries import mean_curve, reached, with_value


def records(losses, *, every=10, step_seconds=0.5):
    return [
        {"step": step, "tokens": 100 * step, "seconds": step_seconds * step, "val_loss": loss}
        for step, loss in zip(range(every, every * len(losses) + 1, every), losses, strict=True)
    ]


def test_a_curve_holds_the_steps_all_seeds_share():
    curve = mean_curve([records([4.0, 3.0, 2.0, 1.0]), records([5.0, 2.0], every=20, step_seconds=1.5)], "val_loss")
    assert curve.steps == [20, 40]
    assert curve.tokens == [2000, 4000]
    assert curve.seconds == [20.0, 40.0]
    assert (curve.mean, curve.low, curve.high) == ([4.0, 1.5], [3.0, 1.0], [5.0, 2.0])


def test_nothing_shared_is_no_curve():
    assert mean_curve([], "val_loss") is None
    assert mean_curve([records([4.0]), records([4.0], every=7)], "val_loss") is None
    assert mean_curve([records([4.0])], "train_loss") is None


def test_records_without_a_finite_value_are_left_out():
    damaged = [*records([3.0]), {"step": 5, "val_loss": 2.0}, {"step": 20, "tokens": 1, "seconds": 1, "val_loss": None}]
    assert [record["step"] for record in with_value(damaged, "val_loss")] == [10]


def test_the_target_is_found_between_two_records_in_proportion():
    found = reached([records([4.0, 3.0, 2.0])], 2.25, flops_per_token=7.0)
    assert (found.seeds, found.steps, found.tokens, found.seconds) == (1, 27.5, 2750.0, 13.75)
    assert found.flops == pytest.approx(2750 * 7.0)


def test_the_first_crossing_counts_and_seeds_that_never_cross_are_not_averaged():
    found = reached([records([4.0, 2.0, 3.0, 2.0]), records([4.0, 3.9, 3.8])], 3.0, flops_per_token=1.0)
    assert (found.seeds, found.steps) == (1, 15.0)
    assert reached([records([4.0, 3.9])], 3.0, flops_per_token=1.0) is None


def test_a_run_below_the_target_at_its_first_record_took_at_most_that_long():
    assert reached([records([2.0, 1.0])], 3.0, flops_per_token=1.0).steps == 10
