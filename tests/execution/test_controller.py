"""The controller: it starts what is missing and nothing twice, whoever dies. Real processes, real signals."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from oelm.core.config import stored_form
from oelm.core.settings import load_settings
from oelm.execution import controller
from oelm.execution.controller import Controller
from oelm.execution.detached import LOG_FILE, start_detached
from oelm.execution.engine import Wanted
from oelm.execution.handles import LOCK_FILE
from oelm.execution.local import LocalEngine, LocalSlots, units_here
from oelm.machine.errors import UserError
from oelm.machine.system import process_exists, rest_until_one_ends
from oelm.run.directory import RunDirectory
from oelm.run.training.run import train
from oelm.storage.files import read_json, write_json
from oelm.storage.ownership import Process
from oelm.study.plan import planned
from oelm.study.reading import load_study
from oelm.study.shelf import Shelf
from small_runs import PATIENCE, VOCABULARY, child_environment, eventually, oelm_command
from warm import FORKED_PARTS, Running, shared_server

TWO_ARMS = ["trained", "frozen_head_orthogonal"]


def write_study(folder: Path, data: Path, *, name: str = "little", steps: int = 4, seeds=(0, 1), **changes) -> Path:
    """A study of seconds; `changes` replace its keys."""
    tree = {
        "question": "Does it run?",
        "base": {
            "preset": "tiny",
            "data": str(data),
            "model": {"vocabulary": VOCABULARY, "seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4},
            "training": {"steps": steps, "batch_size": 4, "learning_rate": 0.01, "validation_sequences": 4},
            "execution": {
                "device": "cpu", "precision": "float32", "compile": "off", "threads": 1, "log_every": 1,
                "checkpoint_every": 20,
            },
        },
        "arms": TWO_ARMS,
        "seeds": list(seeds),
    } | changes  # fmt: skip
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(tree, allow_unicode=True))
    return file


def start(folder: Path, *arguments: object) -> Running:
    """`oelm ARGUMENTS`, in a process that can be sent signals."""
    place = {"cwd": folder, "variables": child_environment()}
    return shared_server().start(*arguments, program="oelm.__main__", patch=FORKED_PARTS, **place)


def run(folder: Path, *arguments: object) -> tuple[int, str]:
    """The exit code and what was said, errors last."""
    done = oelm_command(*arguments, timeout=PATIENCE, cwd=folder)
    return done.returncode, done.stdout + done.stderr


def results(folder: Path, name: str = "little") -> dict[str, dict]:
    found = (folder / "runs" / name).glob("*/experiment_result.json")
    return {file.parent.name: json.loads(file.read_text()) for file in found}


def running(folder: Path, name: str = "little", *, after_step: int = 1) -> list[RunDirectory]:
    """Run directories whose process is alive and has taken steps."""
    found = []
    for file in (folder / "runs" / name).glob("*/status.json"):
        directory = RunDirectory(file.parent)
        status = directory.status() or {}
        step = (directory.last_metrics() or {}).get("step", 0)
        if status.get("state") == "running" and Process.stored(status).is_alive_here() and step >= after_step:
            found.append(directory)
    return found


# ---- A whole study -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished_study(token_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    file = write_study(folder, token_folder, seeds=[0])
    code, out = run(folder, "run", file)
    assert code == 0, out
    return folder, file, out


def test_every_arm_and_seed_is_run_once(finished_study):
    folder, _, out = finished_study
    assert len(results(folder)) == 2
    assert out.count(": started on") == 2
    assert "final 2/2 finished" in out


def test_a_finished_study_is_not_run_again_and_a_changed_config_is_another_run(finished_study, token_folder):
    folder, file, _ = finished_study
    before = {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("slot.json")}
    code, out = run(folder, "run", file)
    assert code == 0, out
    assert "started" not in out
    assert before == {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("slot.json")}
    other = write_study(folder, token_folder, name="changed", steps=5, seeds=[0])
    shelf = Shelf(folder / "runs" / "little")
    assert all(each.stored for each in planned(load_study(file), shelf).runs)
    assert not any(each.stored for each in planned(load_study(other), shelf).runs)


def test_status_and_logs_answer_without_torch(finished_study):
    folder, file, _ = finished_study
    code = (
        "import sys, oelm.cli\n"
        "sys.argv = ['oelm', *sys.argv[1:]]\n"
        "try:\n    oelm.cli.main()\n"
        "except SystemExit as done:\n    sys.exit(done.code or (99 if 'torch' in sys.modules else 0))"
    )
    for arguments, expected in (
        (["status", str(file)], "little: final 2/2 finished"),
        (["status"], "runs/little: 2 finished"),
        (["status", "--runs", "runs/little"], ": finished\n"),  # runs that are of no study
        (["logs", "trained-s0", "-n", "1"], "finished: validation loss"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=folder, env=child_environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout


def test_a_damaged_run_is_named_and_run_again(finished_study, tmp_path):
    """One whose result was changed by a digit, and one whose config is nothing any more."""
    folder, file, _ = finished_study
    shutil.copytree(folder / "runs", tmp_path / "runs")
    before = results(tmp_path)
    changed, lost = (tmp_path / "runs" / "little" / name for name in sorted(before))
    result = changed / "experiment_result.json"
    result.write_text(result.read_text().replace('"val_loss": ', '"val_loss": 1'))
    (lost / "config.json").write_text("[" * 100_000)
    status = changed / "status.json"
    status.write_text(status.read_text()[:20])
    code, out = run(tmp_path, "status", file)
    assert code == 0, out
    for damage in (f"{result.relative_to(tmp_path)}: damaged: changed", "config.json: damaged: nested too deeply"):
        assert damage in out
    code, out = run(tmp_path, "run", file)
    assert code == 0, out
    assert "damaged: changed since the run was sealed; it will be run again" in out
    assert {name: each["val_loss"] for name, each in results(tmp_path).items()} == {
        name: each["val_loss"] for name, each in before.items()
    }
    code, out = run(tmp_path, "status", file)
    assert (code, "damaged" in out) == (0, False)


def test_a_dry_run_shows_commands_costs_and_confounds_and_starts_nothing(token_folder, tmp_path):
    file = write_study(
        tmp_path,
        token_folder,
        seeds=[3],
        arms={"trained": {}, "frozen_normal": {"set": {"learning_rate": 0.02}}},
        hypotheses=[
            {
                "name": "H", "claim": "x", "kind": "better", "treatment": "frozen_normal", "control": "trained",
                "varies": ["moves"],
            }
        ],
    )  # fmt: skip
    code, out = run(tmp_path, "run", file, "--dry-run")
    assert code == 0, out
    assert "oelm train runs/little/frozen_normal-s3-" in out
    assert "time about" in out
    assert "4,096 frozen" in out
    assert "confound in H: training.learning_rate is 0.02 / 0.01" in out
    assert out.endswith("nothing was started\n")
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_counts_the_final_runs_that_wait_for_tuning(token_folder, tmp_path):
    file = write_study(
        tmp_path,
        token_folder,
        seeds=[0, 1, 2],
        arms=["trained"],
        tuning={"grid": {"training.learning_rate": [0.01, 0.02]}, "set": {"training.steps": 2}, "seeds": [9]},
    )
    code, out = run(tmp_path, "run", file, "--dry-run")
    assert code == 0, out
    assert "2 runs to start now: about" in out
    assert "then 3 final runs, with the values that tuning chooses: about" in out
    assert "total: about" in out


# ---- Deaths --------------------------------------------------------------------------------------------------------


def test_killed_controllers_and_killed_runs_change_no_number_and_nothing_starts_twice(token_folder, tmp_path):
    file = write_study(tmp_path, token_folder, steps=200, seeds=[0])
    first = start(tmp_path, "run", file, "--slots", 2)

    def halted() -> list[RunDirectory]:
        """So that neither ends before the next controller has seen it."""
        found = running(tmp_path, after_step=25)
        for directory in found:
            os.kill(directory.status()["pid"], signal.SIGSTOP)
        return found

    alive = eventually(lambda: len(found := halted()) == 2 and found, what="two running runs")
    pids = [directory.status()["pid"] for directory in alive]
    forking = {parent_of(pid) for pid in pids}
    assert len(forking) == 1
    first.send(signal.SIGKILL)
    first.wait(PATIENCE)
    eventually(lambda: not any(map(process_exists, forking)), what="the end of the process that forked the runs")
    assert all(Process.stored(directory.status()).is_alive_here() for directory in alive)
    _, out = run(tmp_path, "status", file)
    assert out.count(" running ") == 2, out
    second = start(tmp_path, "run", file, "--slots", 2)
    handles = [directory.handle_file.read_text() for directory in alive]
    killed, spared = alive
    second.until(lambda: second.written("out").count("found again") == 2, PATIENCE)
    os.kill(pids[0], signal.SIGKILL)
    os.kill(pids[1], signal.SIGCONT)
    ended = second.wait(PATIENCE)
    out = ended.text
    assert ended.code == 0, out
    assert "ended without a message; starting it again" in out
    assert out.count(": started") == 1
    assert spared.handle_file.read_text() in handles
    assert {name: result["resumes"] for name, result in results(tmp_path).items()} == {
        killed.path.name: 1,
        spared.path.name: 0,
    }
    for directory in alive:
        assert read_json(directory.result_file)["val_loss"] == uninterrupted_loss(directory, tmp_path)


def parent_of(pid: int) -> int:
    return int(subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True).stdout)


def uninterrupted_loss(directory: RunDirectory, folder: Path) -> float:
    """The same settings, trained here and now."""
    settings = load_settings(str(directory.settings_file))
    return train(settings.run, settings.execution, out=folder / "whole" / directory.path.name).result["val_loss"]


def test_ctrl_c_saves_every_run_and_the_same_command_goes_on(token_folder, tmp_path):
    file = write_study(tmp_path, token_folder, steps=200, arms=["trained"], seeds=[0])
    controller = start(tmp_path, "run", file)
    (directory,) = eventually(lambda: running(tmp_path, after_step=3), what="a running run")
    pid = directory.status()["pid"]
    forking = parent_of(pid)
    os.kill(pid, signal.SIGSTOP)  # so that it does not end meanwhile
    code, out = run(tmp_path, "run", file)
    assert code == 2
    assert f"a controller is already running this study (host {os.uname().nodename}, pid {controller.pid}" in out
    os.kill(pid, signal.SIGCONT)
    controller.send(signal.SIGINT)
    ended = controller.wait(PATIENCE)
    out = ended.text
    assert ended.code == 130, out
    assert out.endswith(f"oelm: little: stopped\noelm: resume with: {shlex.join(['oelm', 'run', str(file)])}\n")
    assert directory.status()["state"] == "interrupted"
    assert not process_exists(forking)
    code, out = run(tmp_path, "run", file)
    assert code == 0, out
    assert next(iter(results(tmp_path).values()))["resumes"] == 1


def test_stop_ends_the_controller_and_its_runs_save(token_folder, tmp_path):
    file = write_study(tmp_path, token_folder, steps=5000, arms=["trained"], seeds=[0, 1])
    controller = start(tmp_path, "run", file, "--slots", 1)
    (directory,) = eventually(lambda: running(tmp_path, after_step=3), what="a running run")
    code, out = run(tmp_path, "stop", file)
    assert code == 0, out
    assert "saving and stopping 1 run, taking 0 out of the queue" in out
    assert "stopped; the same command with `run` instead of `stop` resumes" in out
    ended = controller.wait(PATIENCE)
    out = ended.text
    assert ended.code == 143, out
    also = "`oelm stop` also stops the runs that have started, which save their state first"
    assert f"oelm: the controller was asked to stop; {also}\n" in out
    assert out.endswith(f"oelm: resume with: {shlex.join(['oelm', 'run', str(file), '--slots', '1'])}\n")
    assert directory.status()["state"] == "interrupted"
    assert len(list((tmp_path / "runs/little").glob("*/slot.json"))) == 1  # the next one was not started
    assert run(tmp_path, "stop", file) == (0, "runs/little: nothing is running\n")


def test_stop_ends_what_was_started_by_hand_and_what_it_can_where_slurm_does_not_answer(token_folder, tmp_path):
    file = write_study(tmp_path, token_folder, steps=5000, arms=["trained"], seeds=[0])
    by_hand = shared_server().start(
        "train", "--preset", "tiny", "--data", token_folder, "--out", "runs/little/mine",
        "--set", "steps=5000", "--set", f"vocabulary={VOCABULARY}", "--set", "seq_len=16", "--set", "log_every=1",
        cwd=tmp_path,
    )  # fmt: skip
    (directory,) = eventually(lambda: running(tmp_path), what="a running run")
    for name, state in (("given", "queued"), ("done", "finished")):
        other = RunDirectory(tmp_path / "runs" / "little" / name)
        shutil.copytree(directory.path, other.path)
        write_json(other.handle_file, {"kind": "slurm", "name": "gone-1", "task": 0})
        write_json(other.status_file, {"state": state})
    code, out = run(tmp_path, "stop", file)  # here is no Slurm, or one that does not know of it
    by_hand.wait(PATIENCE)
    assert "mine: stopping" in out
    assert "saving and stopping 1 run" in out
    assert directory.status()["state"] == "interrupted"
    if code:
        assert "was given to Slurm, which cannot be asked" in out
        assert "given" in out.splitlines()[-1]
        assert "done" not in out.splitlines()[-1]


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this system wakes nobody")
def test_the_end_of_a_run_is_what_wakes_the_controller(token_folder, tmp_path, monkeypatch):
    """Not its next look: however long that is away, every run is followed by the next one."""

    def long_rest(pids: list[int], seconds: float) -> bool:
        assert rest_until_one_ends(pids, PATIENCE), "nobody woke it"
        return True

    monkeypatch.setattr(controller, "rest_until_one_ends", long_rest)
    for name, value in child_environment().items():
        monkeypatch.setenv(name, value)
    study = load_study(write_study(tmp_path, token_folder, arms=["trained"], seeds=[0, 1]))
    units = units_here(1, device="cpu", threads=1)
    slots = LocalSlots(LocalEngine(tmp_path / "runs"), units)
    assert [run.state for run in Controller(study, slots, Quiet()).go().runs] == ["finished"] * 2


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this system wakes nobody")
def test_a_controller_that_is_woken_for_nothing_does_not_spin(token_folder, tmp_path, monkeypatch):
    """A run whose process has ended, and of which it is not known yet that it has."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    looks = []

    class Doubtful:
        pid = gone.pid

        def is_alive(self):
            looks.append(time.monotonic())
            return looks[-1] - looks[0] < 1.0

    study = load_study(write_study(tmp_path, token_folder, arms=["trained"], seeds=[0]))
    watching = Controller(study, LocalSlots(LocalEngine(tmp_path / "runs"), []), Quiet())
    run = SimpleNamespace(handle=Doubtful(), directory=RunDirectory(tmp_path / "runs" / "doubtful"))
    watching.active = [run]
    assert watching._ended(watching._plan()) == [run]
    assert len(looks) < 30


def test_a_run_whose_folder_may_not_be_written_to_is_given_up_alone(token_folder, tmp_path, monkeypatch):
    file = write_study(tmp_path, token_folder, arms=["trained"], seeds=[0, 1])
    slots = LocalSlots(LocalEngine(tmp_path / "runs"), units_here(1, device="cpu", threads=1))
    controller = Controller(load_study(file), slots, Quiet())
    first, second = controller._plan().runs
    taken = RunDirectory(tmp_path / "runs" / first.folder_name(controller.facts.digest))
    taken.path.mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, mode: path != taken.path)  # root may do everything
    assert not controller._can_be_started(Wanted(taken, first))
    assert controller.given_up[taken.path] == f"trained s0: {taken.path}: cannot write there (Permission denied)"
    assert controller._can_be_started(Wanted(RunDirectory(tmp_path / "runs" / "another"), second))


def test_a_restarted_run_is_found_although_its_status_names_the_dead_one(token_folder, tmp_path):
    """Killed, started again, and the controller killed before the new process has written a word."""
    file = write_study(tmp_path, token_folder, arms=["trained"], seeds=[0])
    slots = LocalSlots(LocalEngine(tmp_path / "runs"), units_here(1, device="cpu", threads=1))
    controller = Controller(load_study(file), slots, Quiet())
    run = controller._plan().runs[0]
    directory = RunDirectory(tmp_path / "runs" / run.folder_name(controller.facts.digest))
    directory.path.mkdir(parents=True)
    write_json(directory.config_file, stored_form(run.run))
    dead = {**Process.current().__dict__, "pid_started": "1", "state": "running"}
    write_json(directory.status_file, dead)
    write_json(directory.handle_file, {**Process.current().__dict__, "numbers": [0]})
    controller.afresh()
    assert [active.directory.path for active in controller.active] == [directory.path]


class Quiet:
    def say(self, line): ...
    def show(self, plan, active): ...


# ---- Failures ------------------------------------------------------------------------------------------------------


def test_links_in_a_study_are_named_and_written_through_by_nobody(finished_study, tmp_path):
    """C7: a run with a linked log is left out, the others go on; a controller with a linked lock or log is refused."""
    folder = Path(shutil.copytree(finished_study[0], tmp_path / "copy"))
    precious = tmp_path / "precious"
    precious.write_text("mine")
    runs = [RunDirectory(path) for path in sorted((folder / "runs" / "little").glob("*-s0-*"))]
    for directory in runs:
        directory.result_file.unlink()
    runs[0].output_file.unlink()
    runs[0].output_file.symlink_to(precious)
    runs[1].handle_file.unlink()
    runs[1].handle_file.symlink_to(precious)
    code, out = run(folder, "run", "little.yaml")
    assert code == 1
    assert f"{runs[0].output_file.name}: is a symbolic link" in out
    assert "finished, validation loss" in out
    assert runs[1].result_file.exists()
    assert not runs[0].result_file.exists()
    lock = folder / "runs" / "little" / LOCK_FILE
    lock.unlink()
    lock.symlink_to(precious)
    code, out = run(folder, "run", "little.yaml")
    assert (code, out.count("is a symbolic link")) == (2, 1)
    lock.unlink()
    (lock.parent / LOG_FILE).symlink_to(precious)
    with pytest.raises(UserError, match=r"controller\.log: is a symbolic link"):
        start_detached(["-c", "pass"], lock.parent, say=print)
    assert precious.read_text() == "mine"


def test_a_failed_run_is_named_with_its_error_and_does_not_stop_the_others(token_folder, tmp_path):
    arms = {"trained": {"set": {"execution.device": "cuda:7"}}, "frozen_normal": {}}
    file = write_study(tmp_path, token_folder, arms=arms, seeds=[0])
    code, out = run(tmp_path, "run", file, "--slots", 1)
    assert code == 1
    assert "not finished: trained s0: failed: oelm: execution.device" in out
    assert [name.partition("-")[0] for name in results(tmp_path)] == ["frozen_normal"]
    # Started again it dies before it has written a status: the words of an earlier start are not taken for its own.
    (status,) = (tmp_path / "runs/little").glob("trained-*/status.json")
    write_json(status, read_json(status) | {"state": "interrupted", "error": "an old error", "start": "before"})
    code, out = run(tmp_path, "run", file)
    assert code == 1
    assert "not finished: trained s0: failed: oelm: execution.device" in out
    assert "an old error" not in out


def test_a_run_of_several_processes_goes_through_torchrun(token_folder, tmp_path):
    file = write_study(tmp_path, token_folder, arms={"trained": {"processes": 2}}, seeds=[0])
    code, out = run(tmp_path, "run", file, "--slots", 2)
    assert code == 0, out
    assert next(iter(results(tmp_path).values()))["world_size"] == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "nothing-there"], "study 'nothing-there': no such file"),
        (
            ["run", "little.yaml", "--arms", "trained,frozen_nrmal"],
            "oelm: --arms: 'frozen_nrmal' is not one of the arms",
        ),
        (["run", "little.yaml", "--arms", "trained", "--groups", "trained"], "--groups: is an older name of --arms"),
        (["logs", "no-such-run"], "run 'no-such-run': no such run directory"),
        (["report", "little.yaml", "--lang", "fr"], "--lang fr: en or zh"),
    ],
)
def test_wrong_words_are_one_line(token_folder, tmp_path, arguments, expected):
    write_study(tmp_path, token_folder)
    code, out = run(tmp_path, *arguments)
    assert code == 2
    assert out.startswith("oelm: ")
    assert expected in out
    assert len(out.splitlines()) == 1


def test_missing_data_names_the_command_that_prepares_it(tmp_path):
    write_study(tmp_path, Path("data/tinystories"))
    code, out = run(tmp_path, "run", "little.yaml")
    assert code == 2
    assert "oelm prepare tinystories --out data/tinystories" in out
