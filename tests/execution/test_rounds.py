"""A controller of a study that tunes by halving: what a round drops is stored before the next one starts, and a
controller that died between rounds has forgotten nothing. Runs that end at once."""

import math
import random

import pytest

from instant_slots import InstantSlots, Killed, run_study
from oelm.study.decisions import read_decisions
from oelm.study.plan import planned
from oelm.study.registration import REGISTRATION_FILE
from oelm.study.shelf import Shelf
from stored_runs import CHOSEN, small_study

TUNING = {
    "grid": {"learning_rate": [1e-3, 2e-3, 4e-3]}, "seeds": [7, 8, 9], "extend": 0,
    "method": "halving", "budgets": [0.25, 0.5, 1], "margin": 0.1, "choose": "fitted",
}  # fmt: skip
STUDY = small_study(arms=["trained"], seeds=[0, 1], tuning=TUNING)


class Rounds(InstantSlots):
    """One run at a time, and nothing starts before what it goes by is stored."""

    def submit(self, wanted, active):
        yield from super().submit(self.checked(wanted), active)

    def checked(self, wanted):
        for each in wanted:
            run = each.planned
            stored = {decision.subject for decision in read_decisions(self.folder)}
            rounds = STUDY.tuning.rounds.index(run.budget) if run.stage == "tuning" else len(STUDY.tuning.rounds) - 1
            assert {f"trained, round {number + 1}" for number in range(rounds)} <= stored
            assert ("trained" in stored) == (run.stage == "final")
            assert (self.folder / REGISTRATION_FILE).exists() == (run.stage == "final")
            self.losses = lambda *_, run=run: loss_of(run)
            yield each


def loss_of(run):
    spread = random.Random(run.title).gauss(0, 0.005)
    return 2 + 0.4 * math.log(run.run.training.learning_rate / 1.6e-3) ** 2 + spread


def decided(folder):
    return [(each.subject, each.decided, each.final_runs_then) for each in read_decisions(folder)]


def test_a_controller_killed_between_rounds_decides_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("oelm.study.decisions.now", lambda: CHOSEN)  # before the stored runs started
    whole = Rounds(tmp_path / "whole", None, most=1)
    run_study(STUDY, whole)
    assert [each[0] for each in decided(whole.folder)] == ["trained, round 1", "trained, round 2", "trained"]
    assert {then for *_, then in decided(whole.folder)} == {0}
    assert planned(STUDY, Shelf(whole.folder)).remarks == ()
    assert len(whole.started) == len(set(whole.started))
    for steps in ((10,), (10, 20)):  # killed after each round
        folder = tmp_path / str(steps[-1])
        lives = sum(f"steps={each}" in title for each in steps for title in whole.started)
        with pytest.raises(Killed):
            run_study(STUDY, Rounds(folder, None, most=1, lives=lives))
        run_study(STUDY, Rounds(folder, None, most=1))
        assert decided(folder) == decided(whole.folder)
