"""A controller of a study that tunes by halving: what a round drops is stored before the next one starts, and a
controller that died between rounds has forgotten nothing. Runs that end at once."""

import itertools
import math
import random
import shutil

import pytest

from oelm.execution import controller
from oelm.execution.controller import Controller, DataFacts
from oelm.execution.engine import Handle, Slots
from oelm.execution.engines import engine_named
from oelm.study.decisions import read_decisions
from oelm.study.plan import planned
from oelm.study.registration import REGISTRATION_FILE
from oelm.study.shelf import Shelf
from stored_runs import CHOSEN, DATA_DIGEST, VOCABULARY, small_study, store_finished

RATE = "training.learning_rate"
TUNING = {
    "grid": {"learning_rate": [1e-3, 2e-3, 4e-3]}, "seeds": [7, 8, 9], "extend": 0,
    "method": "halving", "budgets": [0.25, 0.5, 1], "margin": 0.1, "choose": "fitted",
}  # fmt: skip
STUDY = small_study(arms=["trained"], seeds=[0, 1], tuning=TUNING)


class Killed(BaseException):
    pass


class Ended(Handle):
    """A run that ended as soon as it was started."""

    kind, start, place, exit_code = "local", None, "here", 0

    def __init__(self, directory):
        self.directory = directory

    def is_alive(self):
        return False


class Instant(Slots):
    """Ends each run at once, and after so many of them its controller."""

    at_a_time = 1

    def __init__(self, folder, ends_after=math.inf):
        self.engine, self.folder = engine_named("local", folder), folder
        self.ends_after, self.started = ends_after, []

    def submit(self, wanted, active):
        for each in itertools.islice(wanted, 1):
            if len(self.started) == self.ends_after:
                raise Killed
            run = each.planned
            stored = {decision.subject for decision in read_decisions(self.folder)}
            rounds = STUDY.tuning.rounds.index(run.budget) if run.stage == "tuning" else len(STUDY.tuning.rounds) - 1
            assert {f"trained, round {number + 1}" for number in range(rounds)} <= stored
            assert ("trained" in stored) == (run.stage == "final")
            assert (self.folder / REGISTRATION_FILE).exists() == (run.stage == "final")
            self.started.append(run.title)
            store_finished(run, self.folder, loss_of(run))
            yield Ended(each.directory)


def loss_of(run):
    spread = random.Random(run.title).gauss(0, 0.005)
    return 2 + 0.4 * math.log(run.run.training.learning_rate / 1.6e-3) ** 2 + spread


class Silent:
    def say(self, line): ...

    def show(self, plan, active): ...


@pytest.fixture(autouse=True)
def data(monkeypatch):
    facts = DataFacts({"vocabulary": VOCABULARY}, DATA_DIGEST, {STUDY.base["data"]: DATA_DIGEST})
    monkeypatch.setattr(controller, "data_facts", lambda study: facts)
    monkeypatch.setattr("oelm.study.decisions.now", lambda: CHOSEN)  # before the stored runs started


def decided(folder):
    return [(each.subject, each.decided, each.final_runs_then) for each in read_decisions(folder)]


def test_a_controller_killed_between_rounds_decides_the_same(tmp_path):
    whole = Instant(tmp_path / "whole")
    Controller(STUDY, whole, Silent()).go()
    assert [each[0] for each in decided(whole.folder)] == ["trained, round 1", "trained, round 2", "trained"]
    assert {then for *_, then in decided(whole.folder)} == {0}
    assert planned(STUDY, Shelf(whole.folder)).remarks == ()
    assert len(whole.started) == len(set(whole.started))
    after_rounds = [
        sum(f"steps={steps}" in title for steps in (10, 20)[: number + 1] for title in whole.started)
        for number in range(2)
    ]
    for ends_after in after_rounds:
        folder = tmp_path / str(ends_after)
        with pytest.raises(Killed):
            Controller(STUDY, Instant(folder, ends_after), Silent()).go()
        Controller(STUDY, Instant(folder), Silent()).go()
        assert decided(folder) == decided(whole.folder)
        shutil.rmtree(folder)
