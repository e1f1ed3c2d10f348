"""C8: whenever the power fails, a saved checkpoint is found, no half result counts, and the same command goes on.

One real run is recorded and every state replayed that a failure after any of its calls may leave; see power_failure.py.
`make test` looks at every tenth, `make trials` at all; docs/reliability.md holds the counts.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from power_failure import Call, Crash, Disk, Tree, build, can_record, crash_states, recorded, stored
from runs import assert_equal_runs, training

from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory, checkpoint_step
from oelm.run.training.checkpoint import latest_whole
from oelm.study.shelf import read_stored
from warm import WarmServer

RUN = "runs/run"  # below the recorded folder: both are made by the run itself
FEW_STEPS = {"training.steps": 8, "checkpoint_every": 2, "validate_every": 3}
# Written beside their names and renamed: whole or absent, whatever happens.
PUBLISHED = (
    "config.json", "environment.json", "parameters.json", "status.json", "experiment_result.json",
    "seal.json", "best/config.json", "best/generation_config.json", "best/model.safetensors",
)  # fmt: skip

pytestmark = pytest.mark.skipif(not can_record(), reason="needs leave to trace, and strace: apt-get install strace")


@dataclass(frozen=True)
class Recording:
    calls: list[Call]
    path: Path  # where the recorded process wrote
    left: Tree  # what it had written in the end

    @classmethod
    def of(cls, server: WarmServer, folder: Path, data: Path, *, patch: str = "") -> Recording:
        path = folder / "recorded"
        path.mkdir(parents=True)
        words = training(path / RUN, data, **FEW_STEPS)
        return cls(recorded(server, words, folder / "trace", patch=patch), path, stored(path))

    def states(self) -> Iterator[Crash]:
        return crash_states(self.calls, Disk(self.path))

    def published(self) -> dict[str, set[bytes]]:
        """Everything that each published file ever was, from one rename to the next."""
        disk, found = Disk(self.path), {name: set() for name in PUBLISHED}
        for call in self.calls:
            if disk.do(call) and call.name.startswith("rename"):
                tree = disk.seen()
                for name, contents in found.items():
                    contents |= {tree[f"{RUN}/{name}"]} if f"{RUN}/{name}" in tree else set()
        return found


@pytest.fixture(scope="module")
def recording(server, data, tmp_path_factory) -> Recording:
    return Recording.of(server, tmp_path_factory.mktemp("power"), data)


@pytest.fixture(scope="module")
def states(recording) -> list[Crash]:
    return list(recording.states())


@pytest.fixture(scope="module")
def uninterrupted(recording) -> Path:
    return recording.path / RUN


# ---- What must hold --------------------------------------------------------------------------------------------------


class Judge:
    """What is wrong with a crash state, according to the code that would find it."""

    def __init__(self, recording: Recording, folder: Path) -> None:
        self.folder, self.published = folder, recording.published()
        self.result = json.loads(recording.left[f"{RUN}/experiment_result.json"])

    def problems(self, crash: Crash) -> list[str]:
        build(crash.tree, self.folder)
        try:
            return list(self._problems(crash, RunDirectory(self.folder / RUN)))
        finally:
            shutil.rmtree(self.folder)

    def _problems(self, crash: Crash, directory: RunDirectory) -> Iterator[str]:
        for name, contents in self.published.items():
            file = directory.path / name
            if file.exists() and file.read_bytes() not in contents:
                yield f"{name} is neither whole nor absent"
        found = latest_whole(directory, say=lambda line: None)
        if (checkpoint_step(found) if found else 0) < crash.saved:
            yield f"step {crash.saved} was saved, found is {found and found.name}"
        recorded_steps = {record["step"] for record in directory.metrics()}
        if not recorded_steps.issuperset(range(1, crash.saved + 1)):
            yield f"metrics of steps up to {crash.saved} are lost"
        yield from self._problems_of_the_end(crash, directory)

    def _problems_of_the_end(self, crash: Crash, directory: RunDirectory) -> Iterator[str]:
        if not directory.config_file.exists():
            if crash.saved:
                yield "config.json is lost"
            return
        try:
            run = read_stored(directory.path)
        except (OSError, UserError) as error:
            yield f"cannot be read: {error}"
            return
        if run.state == "finished" and run.result != self.result:
            yield "a half result counts"
        if run.state == "damaged":
            yield f"taken for damaged: {run.damage}"
        if crash.sealed and run.state != "finished":
            yield f"sealed, but {run.state}"


# ---- The replay itself -----------------------------------------------------------------------------------------------


def test_the_replay_ends_with_what_the_run_left(recording):
    """So no call that writes was missed."""
    disk = Disk(recording.path)
    for call in recording.calls:
        disk.do(call)
    assert disk.seen() == recording.left


def test_the_states_reach_from_nothing_to_a_sealed_run(states):
    assert len(states) >= 500
    assert states[0].tree == {}
    assert {crash.saved for crash in states} == {0, 2, 4, 6, 8}
    assert {crash.sealed for crash in states} == {False, True}


# ---- Trials ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.trial)])
def test_a_power_failure_loses_nothing_that_was_saved(recording, states, tmp_path, say, every):
    judge, looked_at = Judge(recording, tmp_path / "state"), states[::every]
    found = [(number, problems) for number, crash in enumerate(looked_at) if (problems := judge.problems(crash))]
    assert not found, f"{len(found)} of {len(looked_at)} states, such as {found[:3]}"
    say(f"C8: {len(looked_at)} distinct crash states, 0 violations")


TRIALS = 2 * int(os.environ.get("OELM_TRIALS", "25"))


@pytest.mark.parametrize("count", [3, pytest.param(TRIALS, marks=pytest.mark.trial)])
def test_a_run_goes_on_after_a_power_failure(states, server, data, uninterrupted, tmp_path, say, count):
    """The same command, after failures spread over the run, ends as if nothing had been."""
    for number in range(count):
        folder, crash = tmp_path / str(number), states[number * (len(states) - 1) // (count - 1)]
        build(crash.tree, folder)
        ended = server.run(*training(folder / RUN, data, **FEW_STEPS))
        assert ended.code == 0, ended.text
        assert_equal_runs(folder / RUN, uninterrupted)
        assert read_stored(folder / RUN).state == "finished"
        shutil.rmtree(folder)
    say(f"C8: {count} of {len(states)} crash states resumed, 0 differences")


# ---- Planted faults --------------------------------------------------------------------------------------------------

FILES_NOT_FLUSHED = """
import os, oelm.storage.files as files
def publish(temporary, path, lasting=True):
    os.replace(temporary, path)
    files.fsync_folder(path.parent)
files.publish = publish
"""
FOLDERS_NOT_FLUSHED = """
import oelm.storage.files as files, oelm.run.directory as run_directory
files.fsync_folder = run_directory.fsync_folder = lambda folder: None
"""
CHECKPOINT_NOT_FLUSHED = """
import os, oelm.run.directory as run_directory
class Forgetful:
    def __getattr__(self, name):
        return (lambda descriptor: None) if name == "fsync" else getattr(os, name)
run_directory.os = Forgetful()
"""
PRUNED_FIRST = """
import shutil, oelm.run.training.driver as driver
save = driver.save_checkpoint
def pruning_first(directory, step, **parts):
    for folder in directory.stored_checkpoints():
        shutil.rmtree(folder)
    save(directory, step, **parts)
driver.save_checkpoint = pruning_first
"""
SEALED_FIRST = """
import oelm.run.training.driver as driver
seal, write = driver.seal_run, driver.write_json
def writing(path, value, **options):
    if path.name == "experiment_result.json":
        path.write_text("{}")
        seal(driver.RunDirectory(path.parent), "finished", step=value["steps"])
    write(path, value, **options)
driver.write_json = writing
"""


PLANTED = {
    "files not flushed": (FILES_NOT_FLUSHED, "neither whole nor absent"),
    "folders not flushed": (FOLDERS_NOT_FLUSHED, "was saved"),
    "checkpoint not flushed": (CHECKPOINT_NOT_FLUSHED, "was saved"),
    "pruned first": (PRUNED_FIRST, "was saved"),
    "sealed first": (SEALED_FIRST, "taken for damaged"),
}


@pytest.mark.parametrize(
    "fault", [*[*PLANTED][:1], *(pytest.param(each, marks=pytest.mark.trial) for each in [*PLANTED][1:])]
)
def test_a_planted_fault_is_found_out(server, data, tmp_path, fault):
    patch, problem = PLANTED[fault]
    recording = Recording.of(server, tmp_path / "planted", data, patch=patch)
    judge = Judge(recording, tmp_path / "state")
    assert any(problem in line for crash in recording.states() for line in judge.problems(crash))
