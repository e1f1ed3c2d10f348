"""What becomes of runs that end without a word: one killed from outside is tried once more, one that left by itself
has failed."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from instant_slots import run_study
from oelm.execution.engine import Handle, Slots
from oelm.execution.local import LocalEngine
from stored_runs import small_study


class Ended(Handle):
    kind, start, place, exit_code = "local", None, "here", None

    def __init__(self, directory, exit_code):
        self.directory, self.exit_code = directory, exit_code

    def is_alive(self):
        return False


@dataclass
class Silent(Slots):
    folder: Path
    exit_code: int | None  # None: nobody knows it
    started: list[str] = field(default_factory=list)

    @property
    def engine(self):
        return LocalEngine(self.folder)

    def submit(self, wanted, active):
        for each in wanted:
            each.prepare()
            self.started.append(each.planned.title)
            yield Ended(each.directory, self.exit_code)


@pytest.mark.parametrize(
    ("exit_code", "starts", "said"),
    [
        (-9, 2, "failed: ended without a message, 2 times"),
        (None, 2, "failed: ended without a message, 2 times"),
        (3, 1, "failed: exit code 3"),
    ],
)
def test_a_run_that_ends_without_a_word_is_started_again_once_and_only_if_it_was_killed(
    tmp_path, exit_code, starts, said
):
    study = small_study(arms=["trained"], seeds=[0, 1])
    slots = Silent(tmp_path / "runs", exit_code)
    plan, lines = run_study(study, slots)
    titles = [run.title for run in plan.final]
    assert sorted(slots.started) == sorted(starts * titles)
    assert [run.state for run in plan.final] == ["failed", "failed"]
    assert [sum(line.startswith(f"{title}: {said}") for line in lines) for title in titles] == [1, 1]
