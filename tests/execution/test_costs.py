"""What a dry run says that runs would cost."""

from dataclasses import replace

import pytest

from oelm.execution import costs
from oelm.execution.costs import START_SECONDS, cost_lines
from wanted_runs import wanted_run

PROBE = {
    "seconds_per_step": 1.0,
    "validation_seconds_per_sequence": 0.0,
    "warmup_seconds": 0.0,
    "held_out": 1,
    "checkpoint_bytes": 1024,
    "peak_memory_bytes": 1024,
}


@pytest.mark.parametrize(
    ("now", "later", "slots", "said"),
    [
        (1, 0, 4, ["1 run to start now: about {one} on 4 slots"]),
        (4, 0, 1, ["4 runs to start now: about {four} on 1 slot"]),
        (
            2,
            1,
            2,
            ["2 runs to start now: about {one} on 2 slots", "then 1 final run,", "total: about {two} on 2 slots"],
        ),
    ],
)
def test_runs_take_as_long_as_the_longest_of_them_and_stages_follow_each_other(
    tmp_path, monkeypatch, now, later, slots, said
):
    monkeypatch.setattr(costs, "probed", lambda *_, **__: PROBE)
    runs = [wanted_run(tmp_path / str(number)) for number in range(now + later)]
    one = START_SECONDS + runs[0].planned.resolved_run.training.steps
    times = {name: costs.duration(count * one) for name, count in (("one", 1), ("two", 2), ("four", 4))}
    lines = cost_lines(runs[:now], runs[now:], slots=slots, variables={}, timeout=1)
    for line, expected in zip(lines[-len(said) :], said, strict=True):
        assert line.startswith(expected.format(**times))


def changed(wanted, **of_training):
    settings = wanted.planned.settings
    training = settings.run.training.model_copy(update=of_training)
    run = settings.run.model_copy(update={"training": training, "arm": "of another length"})
    planned = replace(wanted.planned, settings=settings.model_copy(update={"run": run}), arm="of another length")
    return replace(wanted, planned=planned)


def test_runs_that_differ_only_in_their_length_are_probed_once(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(costs, "probed", lambda settings, **_: asked.append(settings) or PROBE)
    run = wanted_run(tmp_path / "run")
    longer = changed(run, steps=4000, learning_rate=1e-2, warmup_steps=7)
    lines = cost_lines([run, longer], [], slots=1, variables={}, timeout=1)
    assert len(asked) == 1
    steps = run.planned.resolved_run.training.steps + 4000
    assert lines[-1].startswith(f"2 runs to start now: about {costs.duration(2 * START_SECONDS + steps)} on 1 slot")
    cost_lines([run, changed(run, batch_size=64)], [], slots=1, variables={}, timeout=1)
    assert len(asked) == 3


def test_final_runs_of_a_model_that_no_tuning_run_has_are_probed_too(tmp_path, monkeypatch):
    monkeypatch.setattr(costs, "probed", lambda *_, **__: PROBE)
    run = wanted_run(tmp_path / "run")
    lines = cost_lines([run], [changed(run, batch_size=64)], slots=1, variables={}, timeout=1)
    assert not any("unknown" in line for line in lines)
