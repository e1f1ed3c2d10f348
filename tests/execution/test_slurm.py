"""A study on a Slurm cluster, with real daemons on loopback: nothing starts twice, preemption changes no number."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_controller import results, uninterrupted_loss, write_study

import loopback_slurm
from loopback_slurm import Cluster
from oelm.execution.engine import Given, Wanted
from oelm.execution.handles import DamagedHandle, StudyEngines
from oelm.execution.slurm import SlurmEngine, SlurmSlots
from oelm.execution.slurm_queue import FIRST_LOOK_SECONDS
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.storage.files import read_json
from oelm.study.declaration import study_digest
from oelm.study.reading import load_study, study_of
from oelm.study.slurm_request import SlurmRequest, changed
from small_runs import PATIENCE, eventually, oelm_command
from wanted_runs import wanted_run

HELD = ["--slurm", "options=--hold"]  # in the queue, and never started
LARGEST_ARRAY = 4
NASTY = "a b'\"$(touch pwned)`touch pwned`;touch pwned&|<>*?[x]~#!%j%%{z}"


@pytest.fixture(scope="module")
def started_slurm(tmp_path_factory) -> Cluster:
    reason = loopback_slurm.missing()
    if reason:
        pytest.skip(reason)
    with loopback_slurm.cluster(tmp_path_factory.mktemp("slurm"), largest_array=LARGEST_ARRAY) as started:
        yield started


@pytest.fixture
def slurm(started_slurm) -> Cluster:
    """With an empty queue, whatever the test before left there."""
    yield started_slurm
    started_slurm.cancel_everything()


def printed(directory: RunDirectory) -> str:
    return directory.output_file.read_text() if directory.output_file.exists() else ""


def start(slurm: Cluster, folder: Path, *words: object, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "oelm", *map(str, words)],
        cwd=folder, env=slurm.environment | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def run(slurm: Cluster, folder: Path, *words: object, **variables: str) -> tuple[int, str]:
    done = oelm_command(*words, timeout=PATIENCE, cwd=folder, variables=slurm.environment | variables)
    return done.returncode, done.stdout + done.stderr


def jobs_of(slurm: Cluster, name: str) -> list[tuple[str, str, str]]:
    """Array, task and state of a study's jobs."""
    return [(each[0], each[1], each[2]) for each in slurm.jobs() if each[0].rpartition("-")[0] == name]


# ---- Submitted once ------------------------------------------------------------------------------------------------


def test_a_study_is_submitted_once_shown_and_stopped(slurm, token_folder, tmp_path):
    file = write_study(tmp_path, token_folder, name="held")
    code, out = run(slurm, tmp_path, "run", file, "--on", "slurm", "--no-wait", "--slots", 2, *HELD)
    assert code == 0, out
    first = jobs_of(slurm, "held")
    assert sorted(task for _, task, _ in first) == ["0", "1", "2", "3"]
    assert len({name for name, _, _ in first}) == 1

    code, out = run(slurm, tmp_path, "run", file, "--on", "slurm", "--no-wait", *HELD)
    assert code == 0, out
    assert out.count("already waiting") == 4
    assert jobs_of(slurm, "held") == first

    code, out = run(slurm, tmp_path, "status", file)
    assert code == 0, out
    assert (
        out.count("queued       step 0/4  Slurm: PENDING (JobHeldUser: release it with `scontrol release`), job") == 4
    ), out

    code, out = run(slurm, tmp_path, "stop", file)
    assert code == 0, out
    assert {state for _, _, state in jobs_of(slurm, "held")} == {"CANCELLED"}
    assert "held: final 0/4 finished (4 missing)\n" in run(slurm, tmp_path, "status", file)[1]
    code, out = run(slurm, tmp_path, "stop", file)
    assert (code, out) == (0, "runs/held: nothing is running\n")

    code, out = run(slurm, tmp_path, "run", file, "--on", "slurm", "--no-wait", *HELD)
    assert out.count(": started on Slurm") == 4
    assert {name for name, _, state in jobs_of(slurm, "held") if state == "PENDING"}.isdisjoint(first[0])
    run(slurm, tmp_path, "stop", file)


def test_more_runs_than_the_cluster_allows_in_an_array_are_several_arrays(slurm, token_folder, tmp_path):
    file = write_study(tmp_path, token_folder, name="many", seeds=[0, 1, 2])
    words = ["run", file, "--on", "slurm", "--slots", 2, *HELD]
    code, out = run(slurm, tmp_path, *words, "--dry-run")
    assert code == 0, out
    assert [line.partition("--array=")[2].split()[0] for line in out.splitlines() if line.startswith("sbatch ")] == [
        "0-3%2", "0-1%2",
    ]  # fmt: skip
    assert (
        "6 runs to submit now, in 2 arrays of at most 4 runs, as this cluster allows (MaxArraySize); --slots 2 applies "
        "to each of them\n"
    ) in out
    assert jobs_of(slurm, "many") == []
    code, out = run(slurm, tmp_path, *words, "--no-wait")
    assert code == 0, out
    jobs = jobs_of(slurm, "many")
    assert sorted(task for _, task, _ in jobs) == ["0", "0", "1", "1", "2", "3"]
    assert len({name for name, _, _ in jobs}) == 2
    code, out = run(slurm, tmp_path, "run", file, "--dry-run")  # on this machine
    assert out.count("already waiting") == 6, out
    assert "nothing to start now" in out


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_controller_killed_around_sbatch_submits_nothing_twice(slurm, token_folder, tmp_path, moment):
    """sbatch itself goes on when its controller is killed: the next controller waits for its end."""
    name = f"killed-{moment}"
    file = write_study(tmp_path, token_folder, name=name)
    slow = slow_sbatch(tmp_path, moment)
    controller = start(slurm, tmp_path, "run", file, "--on", "slurm", *HELD, PATH=slow)
    eventually((tmp_path / "sbatch-runs").exists, what="sbatch")
    controller.send_signal(signal.SIGKILL)
    controller.communicate()
    code, out = run(slurm, tmp_path, "run", file, "--on", "slurm", "--no-wait", *HELD)
    assert code == 0, out
    assert out.count("already waiting") == 4, out
    assert len(jobs_of(slurm, name)) == 4
    code, out = run(slurm, tmp_path, "stop", file)
    assert code == 0, out


def test_an_sbatch_under_way_goes_on_when_its_controller_is_stopped(slurm, token_folder, tmp_path):
    name = "under-way"
    file = write_study(tmp_path, token_folder, name=name, seeds=[0])
    controller = start(slurm, tmp_path, "run", file, "--on", "slurm", *HELD, PATH=slow_sbatch(tmp_path, "before"))
    eventually((tmp_path / "sbatch-runs").exists, what="sbatch")
    controller.send_signal(signal.SIGTERM)
    controller.communicate(timeout=PATIENCE)
    code, out = run(slurm, tmp_path, "stop", file)
    assert code == 0, out
    assert "saving and stopping 0 runs, taking 2 out of the queue" in out
    assert {state for _, _, state in jobs_of(slurm, name)} == {"CANCELLED"}


def slow_sbatch(folder: Path, moment: str) -> str:
    """A PATH whose sbatch takes its time, before or after it submits."""
    (folder / "bin").mkdir()
    pause = f"import time, pathlib; pathlib.Path({str(folder / 'sbatch-runs')!r}).touch(); time.sleep(3)\n"
    real = loopback_slurm.program("sbatch")
    call = f"import subprocess, sys; code = subprocess.call([{real!r}, *sys.argv[1:]])\n"
    text = pause + call if moment == "before" else call + pause
    program = folder / "bin" / "sbatch"
    program.write_text(f"#!{sys.executable}\n{text}sys.exit(code)\n")
    program.chmod(0o755)
    return f"{folder / 'bin'}:{os.environ['PATH']}"


def test_ctrl_c_of_a_waiting_controller_leaves_the_jobs_alone(slurm, token_folder, tmp_path):
    file = write_study(tmp_path, token_folder, name="left", seeds=[0])
    controller = start(slurm, tmp_path, "run", file, "--on", "slurm", *HELD)
    eventually(lambda: len(jobs_of(slurm, "left")) == 2, what="two jobs")
    for _ in range(2):  # both are noted
        while "started on Slurm" not in controller.stdout.readline():
            assert controller.poll() is None
    controller.send_signal(signal.SIGINT)
    out, _ = controller.communicate(timeout=PATIENCE)
    assert controller.returncode == 130, out
    assert "left to Slurm: 2 jobs" in out
    assert {state for _, _, state in jobs_of(slurm, "left")} == {"PENDING"}
    waiting = start(slurm, tmp_path, "run", file, "--on", "slurm", *HELD)
    eventually(lambda: (tmp_path / "runs/left/controller.lock").read_text().strip(), what="a controller")
    code, out = run(slurm, tmp_path, "stop", file)
    assert code == 0, out
    assert waiting.wait(10) == 143
    waiting.stdout.close()
    assert {state for _, _, state in jobs_of(slurm, "left")} == {"CANCELLED"}


def test_a_task_cancelled_while_it_waits_is_not_submitted_again(slurm, token_folder, tmp_path):
    """Slurm keeps no record of it."""
    file = write_study(tmp_path, token_folder, name="unwanted")
    controller = start(slurm, tmp_path, "run", file, "--on", "slurm", *HELD)
    eventually(lambda: len(jobs_of(slurm, "unwanted")) == 4, what="four jobs")
    for _ in range(4):
        while "started on Slurm" not in controller.stdout.readline():
            assert controller.poll() is None
    time.sleep(2 * FIRST_LOOK_SECONDS)  # the controller has seen them wait
    (name,) = {name for name, _, _ in jobs_of(slurm, "unwanted")}
    array = slurm.ask("squeue", f"--name={name}", "--noheader", "--format=%F").split()[0]
    slurm.ask("scancel", f"{array}_2")
    while "; the same command submits it again" not in (line := controller.stdout.readline()):
        assert line, "the controller has ended"
        assert "starting it again" not in line
    controller.send_signal(signal.SIGINT)
    out, _ = controller.communicate(timeout=PATIENCE)
    assert "left to Slurm: 3 jobs" in out
    assert {each for each, _, _ in jobs_of(slurm, "unwanted")} == {name}


# ---- Preemption, limits, nodes -------------------------------------------------------------------------------------


def test_a_preempted_run_is_requeued_and_ends_as_if_nothing_had_happened(slurm, token_folder, tmp_path):
    """K7. Below a folder whose name a shell would take for commands; its controller is killed too."""
    runs = tmp_path / NASTY
    file = write_study(tmp_path, token_folder, name="preempted", steps=600, arms=["trained"], seeds=[0])
    words = ["run", file, "--on", "slurm", "--runs", runs, "--slurm", "partition=work"]
    first = start(slurm, tmp_path, *words)
    directory = eventually(
        lambda: next((RunDirectory(file.parent) for file in runs.glob("*/slot.json")), None), what="a run"
    )
    eventually(lambda: (directory.last_metrics() or {}).get("step", 0) >= 25, what="steps")
    first.send_signal(signal.SIGKILL)
    first.communicate()
    slurm.ask(
        "sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--job-name=urgent", "--output=/dev/null",
        "--wrap=sleep 1",
    )  # fmt: skip
    eventually(lambda: directory.status()["state"] == "interrupted", what="a saved state")
    code, out = run(slurm, tmp_path, *words)
    assert code == 0, f"{out}\n{directory.output_file.read_text()}"
    assert "found again" in out
    assert ": started" not in out
    assert len(jobs_of(slurm, "preempted")) == 1
    result = read_json(directory.result_file)
    assert result["resumes"] == 1
    assert "requeued 1 times" in directory.output_file.read_text()
    assert result["val_loss"] == uninterrupted_loss(directory, tmp_path)
    assert not list(tmp_path.rglob("pwned"))


def test_a_run_killed_on_its_node_is_submitted_once_more(slurm, token_folder, tmp_path):
    """As by the node's guard of its memory. The node has a host name of its own."""
    file = write_study(tmp_path, token_folder, name="killed", steps=1200, arms=["trained"], seeds=[0])
    # On one node: on another the run would wait until the lost one's heartbeat is stale.
    controller = start(slurm, tmp_path, "run", file, "--on", "slurm", "--slurm", "options=--nodelist=node1")
    directory = eventually(
        lambda: next((RunDirectory(file.parent) for file in tmp_path.glob("runs/killed/*/slot.json")), None),
        what="a run",
    )
    killed: set[int] = set()

    def training() -> dict | None:
        status, step = directory.status() or {}, (directory.last_metrics() or {}).get("step", 0)
        return status if status.get("state") == "running" and status["pid"] not in killed and step >= 25 else None

    for _ in range(2):
        status = eventually(training, what="steps")
        assert status["host"] == ("node1" if os.geteuid() == 0 else socket.gethostname())
        os.kill(status["pid"], signal.SIGKILL)
        killed.add(status["pid"])
    out, _ = controller.communicate(timeout=PATIENCE)
    assert controller.returncode == 1, out
    assert "ended by Slurm: FAILED, job" in out
    assert out.count("starting it again where it stopped") == 1, out
    assert "started again on Slurm" in out
    assert "2 times" in out
    assert directory.status()["state"] == "failed"
    assert "is being run by another process" not in out


def test_a_run_over_two_nodes(slurm, token_folder, tmp_path):
    arms = {"trained": {"processes": 2}}
    file = write_study(tmp_path, token_folder, name="nodes", arms=arms, seeds=[0], slurm={"nodes": 2})
    code, out = run(slurm, tmp_path, "run", file, "--on", "slurm")
    log = "\n".join(file.read_text() for file in (tmp_path / "runs").glob("nodes/*/output.log"))
    assert code == 0, f"{out}\n{log}"
    (result,) = results(tmp_path, "nodes").values()
    assert result["world_size"] == 2


@pytest.mark.trial
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_run_saves_before_its_time_limit_and_goes_on_in_the_queue(slurm, token_folder, tmp_path, nodes):
    """Two minutes, and a signal twenty seconds before; Slurm may send it a minute early."""
    arms = {"trained": {"processes": nodes}}
    seeds = [0, 1] if nodes == 1 else [0]  # of an array of two, each goes back alone
    file = write_study(tmp_path, token_folder, name=f"limited-{nodes}", steps=20_000, arms=arms, seeds=seeds)
    words = ["--slurm", "time=2", "--slurm", "save_seconds=20", "--slurm", f"nodes={nodes}"]
    code, out = run(slurm, tmp_path, "run", file, "--on", "slurm", "--no-wait", *words)
    assert code == 0, out
    directories = [RunDirectory(file.parent) for file in (tmp_path / f"runs/limited-{nodes}").glob("*/slot.json")]
    for directory in directories:
        eventually(lambda run=directory: "requeueing" in printed(run), what="the limit's signal")
    for directory in directories:
        eventually(lambda run=directory: "resuming from step" in printed(run), what="the second start")
        assert ", saved" in printed(directory)
        assert "could not be requeued" not in printed(directory)
    assert len(jobs_of(slurm, f"limited-{nodes}")) == len(seeds)
    code, out = run(slurm, tmp_path, "stop", file)
    assert code == 0, out


@pytest.mark.trial
@pytest.mark.parametrize("trial", range(5))
def test_preemption_of_a_run_over_two_nodes(slurm, token_folder, tmp_path, trial):
    arms = {"trained": {"processes": 2}}
    name = f"wide-{trial}"
    file = write_study(tmp_path, token_folder, name=name, steps=600, arms=arms, seeds=[0], slurm={"nodes": 2})
    controller = start(slurm, tmp_path, "run", file, "--on", "slurm")
    slots = tmp_path / "runs" / name
    directory = eventually(
        lambda: next((RunDirectory(file.parent) for file in slots.glob("*/slot.json")), None), what="a run"
    )
    eventually(lambda: (directory.last_metrics() or {}).get("step", 0) >= 25 + 10 * trial, what="steps")
    slurm.ask("sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
    out, _ = controller.communicate(timeout=PATIENCE)
    assert controller.returncode == 0, f"{out}\n{directory.output_file.read_text()}"
    assert read_json(directory.result_file)["resumes"] == 1
    assert "saved" in directory.output_file.read_text()


# ---- Refusals ------------------------------------------------------------------------------------------------------


def test_gpus_of_this_machine_are_not_chosen_for_a_cluster(token_folder, tmp_path):
    file = write_study(tmp_path, token_folder, name="both")
    done = oelm_command("run", file, "--on", "slurm", "--gpus", "0")
    assert done.returncode == 2
    assert "--gpus: chooses GPUs of this machine" in done.stderr


def test_what_sbatch_refuses_is_one_line(slurm, token_folder, tmp_path):
    file = write_study(tmp_path, token_folder, name="refused")
    code, out = run(slurm, tmp_path, "run", file, "--on", "slurm", "--slurm", "partition=nowhere")
    assert code == 2
    (line,) = out.splitlines()
    assert line == (
        "oelm: sbatch: Invalid partition name specified; choose one with --slurm partition=NAME or slurm.partition in "
        "the study; `sinfo -s` lists them"
    )
    assert jobs_of(slurm, "refused") == []
    assert "refused: final 0/4 finished (4 missing)\n" in run(slurm, tmp_path, "status", file)[1]
    assert {path.name for path in (tmp_path / "runs/refused").glob("*/*")} == {"submit.lock"}


def test_a_cluster_that_does_not_answer_is_one_line(slurm, token_folder, tmp_path):
    dead = tmp_path / "slurm.conf"
    text = (slurm.folder / "slurm.conf").read_text()
    dead.write_text("MessageTimeout=2\n" + text.replace("SlurmctldPort=", "SlurmctldPort=1 #"))
    file = write_study(tmp_path, token_folder, name="silent")
    began = time.monotonic()
    code, out = run(slurm, tmp_path, "run", file, "--on", "slurm", SLURM_CONF=str(dead))
    assert code == 2
    (line,) = out.splitlines()
    assert line.startswith("oelm: ")
    assert "try again later" in line
    assert time.monotonic() - began < 120


def test_without_slurm_the_line_says_where_to_go(token_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    study = load_study(write_study(tmp_path, token_folder))
    with pytest.raises(UserError, match="sbatch is not on this machine; work on the cluster's login node"):
        SlurmEngine(tmp_path).slots(study, Given(), say=print)


def test_processes_that_do_not_fit_the_nodes_are_refused(token_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    study = load_study(write_study(tmp_path, token_folder, arms={"trained": {"processes": 3}}, slurm={"nodes": 2}))
    with pytest.raises(UserError, match=r"arms.trained: 3 processes cannot be spread evenly over slurm.nodes 2"):
        SlurmEngine(tmp_path).slots(study, Given(), say=print)


# ---- Words, never commands -----------------------------------------------------------------------------------------

HOSTILE = [
    "", " ", "-", "--wrap=touch pwned", "-oProxyCommand=x", "a;touch pwned", "a&touch pwned", "a|touch pwned",
    "$(touch pwned)", "`touch pwned`", "${IFS}", "a\nb", "a\tb", "a\rb", "a\0b", "a\x1b[2Jb", "../up", "/etc/passwd",
    "a/b", "~root", "a>b", "a<b", "a*", "a?", "[a]", "{a,b}", "a'b", 'a"b', "a\\b", "!a", "#a", "a b ", "%j", "=a",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_words_are_refused_or_stay_one_word(text, tmp_path):
    with pytest.raises(UserError, match="name"):
        study_of(
            {"name": text, "question": "?", "base": {"preset": "tiny"}, "arms": ["trained"], "seeds": [0]}, name="x"
        )
    with pytest.raises(UserError):
        changed(SlurmRequest(), [f"options={text}"])
    for key in ("partition", "account", "constraint", "time", "gpus", "memory"):
        try:
            request = changed(SlurmRequest(), [f"{key}={text}"])
        except UserError:
            continue
        if getattr(request, key) is None:  # YAML's own word for nothing
            continue
        arguments = slots_of(plain_study(), tmp_path, request).arguments([wanted(tmp_path)], "array")
        option = {"memory": "mem", "gpus": "gpus-per-node"}.get(key, key)
        assert arguments.count(f"--{option}={text}") == 1
        assert not any(ord(letter) < 32 for letter in text)


def test_a_path_is_one_word_and_its_percent_signs_are_literal(tmp_path):
    folder = tmp_path / NASTY
    arguments = slots_of(plain_study(), folder).arguments([wanted(folder)], "array")
    assert f"--output={folder}/slurm/array-%a.log".replace("%j%%", "%%j%%%%") in arguments
    assert arguments[-1] == f"{folder}/slurm/array.json"
    with pytest.raises(UserError, match="backslash"):
        slots_of(plain_study(), tmp_path / "a\\b").arguments([wanted(folder)], "array")


# ---- What is asked for ---------------------------------------------------------------------------------------------


def plain_study():
    return study_of(
        {"name": "plain", "question": "?", "base": {"preset": "tiny"}, "arms": ["trained"], "seeds": [0]}, name="x"
    )


def slots_of(study, folder: Path, request: SlurmRequest | None = None) -> SlurmSlots:
    return SlurmSlots(SlurmEngine(folder), study, request or study.slurm)


def wanted(folder: Path, *, processes: int = 1) -> Wanted:
    return wanted_run(folder / "run", processes=processes)


def test_a_study_says_what_its_jobs_ask_for_and_flags_replace_it(tmp_path):
    study = study_of(
        {
            "name": "asks", "question": "?", "base": {"preset": "tiny"}, "arms": ["trained"], "seeds": [0],
            "slurm": {
                "partition": "gpu", "time": "8:00:00", "gpus": "a100:1", "account": "lab", "memory": "32G",
                "constraint": "nvme&fast", "nodes": 2, "options": ["--exclusive"],
            },
        },
        name="x",
    )  # fmt: skip
    request = changed(study.slurm, ["time=30", "options=--mail-type=END"])
    arguments = slots_of(study, tmp_path, request).arguments([wanted(tmp_path, processes=8)] * 3, "array")
    for word in (
        "--partition=gpu", "--time=30", "--gpus-per-node=a100:4", "--account=lab", "--mem=32G", "--nodes=2",
        "--constraint=nvme&fast", "--exclusive", "--mail-type=END", "--array=0-2", "--requeue", "--cpus-per-task=4",
        "--signal=B:USR1@120", "--open-mode=append",
    ):  # fmt: skip
        assert word in arguments
    assert study_digest(study) == study_digest(study.model_copy(update={"slurm": SlurmRequest()}))


def test_runs_that_ask_for_the_same_share_an_array(tmp_path, monkeypatch):
    one, two = wanted(tmp_path), wanted(tmp_path, processes=2)
    monkeypatch.setattr("oelm.execution.slurm.largest_array", lambda: 1001)
    arrays = slots_of(plain_study(), tmp_path).arrays([one] * 1500 + [two] * 2)
    assert [len(array) for array in arrays] == [1001, 499, 2]


@pytest.mark.parametrize("content", [{"kind": "slurm"}, {"kind": "slurm", "name": 3, "task": "x"}])
def test_a_damaged_handle_of_a_job_is_not_taken_for_none(tmp_path, content):
    RunDirectory(tmp_path).handle_file.write_text(json.dumps(content))
    with pytest.raises(DamagedHandle, match=r"slot\.json: damaged: name"):
        StudyEngines(tmp_path).found(RunDirectory(tmp_path))
