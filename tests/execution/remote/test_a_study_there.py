"""A user's way with a server: check, sync, run, a cut connection, status, logs, pull, report; the numbers are ours."""

import os
import shutil
import signal
import subprocess
import sys

import yaml
from loopback import HOST, add_study, kill_clients, needs_a_server, results

from oelm.execution.detached import at_work
from oelm.storage.files import read_json
from small_runs import REPOSITORY, eventually

pytestmark = needs_a_server


def test_the_whole_way_gives_the_numbers_of_this_machine(shared_world):
    world = shared_world
    add_study(world, steps=30, arms=["trained", "frozen_head_orthogonal"])
    for _ in range(2):  # without a folder there, and with an empty one
        assert world.remote("run", "little") == (
            2, f"oelm: {HOST}: {world.there}: oelm is not there yet; send it first with `oelm remote {HOST} sync`\n",
        )  # fmt: skip
        world.there.mkdir(parents=True, exist_ok=True)
    code, out = world.remote("check")
    assert code == 1, out  # nothing was sent yet
    assert f"oelm     not there yet: oelm remote {HOST} sync" in out
    assert "tracked files" in world.must("sync", "little")
    out = world.must("check")
    assert "missing" not in out
    assert "gpus     none: runs use the cores" in out

    assert "started (host" in world.must("run", "little")
    follower = world.start("remote", HOST, "logs", "--follow")
    eventually(lambda: kill_clients(follower), what="an ssh client")
    follower.communicate(timeout=60)
    there = world.there / "runs" / "little"
    eventually(lambda: len(results(there)) == 2, what="both runs there")

    assert "little: final 2/2 finished" in world.must("status", "little")
    assert "finished: validation loss" in world.must("logs", "little/trained-s0", "-n", "3")
    world.must("pull", "little")
    pulled = results(world.project / "runs" / "little")
    code, out = world.oelm("status", "little")
    assert "little: final 2/2 finished" in out
    code, out = world.oelm("report", "little", "--lang", "en")
    assert code == 0, out
    _, out = world.oelm("run", "little", "--runs", "runs/here", "--arms", "frozen_head_orthogonal")
    (name, here), *others = results(world.project / "runs" / "here").items()
    assert not others, out
    assert pulled[name]["val_loss"] == here["val_loss"]
    assert len(pulled) == 2
    environments = [read_json(run / "environment.json") for run in (world.project / "runs" / "little").glob("*/")]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=world.project, capture_output=True, text=True, check=True)
    assert {each["commit"] for each in environments} == {head.stdout.strip()}


def test_what_goes_wrong_over_there_is_said_here_in_a_line(shared_world):
    for name in ("changed", "no-data"):
        add_study(shared_world, name)
    shared_world.must("sync")
    add_study(shared_world, "changed", steps=5)
    shutil.copy(shared_world.project / "studies" / "changed.yaml", shared_world.project / "studies" / "untracked.yaml")
    shutil.rmtree(shared_world.there / "data", ignore_errors=True)
    for words, expected in (
        (["sync", "untracked"], "studies/untracked.yaml: not tracked by git, so not sent; `git add` it"),
        (["run", "untracked"], "studies/untracked.yaml: not tracked by git"),
        (["run", "changed"], "study 'changed' is different here; send yours with `sync` first"),
        (["run", "no-data"], "no prepared data there"),
        (["logs", "$(touch canary)"], "run '$(touch canary)': no such run directory"),
        (["run", "no-data", "--arms", "x;touch canary"], "'x;touch canary' is not one of the arms"),
        (["pull", "no-such"], "study 'no-such': no such file"),
    ):
        code, out = shared_world.remote(*words)
        assert code == 2, out
        assert expected in out
        assert len(out.splitlines()) == 1, out
    (shared_world.project / "studies" / "untracked.yaml").unlink()
    log = shared_world.there / "runs" / "no-data" / "controller.log"
    assert f"none running (it ended with: {log.read_text().splitlines()[-1].removeprefix('oelm: ')})" in (
        shared_world.must("status", "no-data")
    )
    assert not (shared_world.there / "runs" / "changed").exists()
    assert not [*shared_world.project.rglob("canary"), *shared_world.there.rglob("canary")]


def test_a_sync_of_a_study_whose_data_is_nowhere_fails_when_everything_else_is_sent(shared_world):
    """The test before has removed it there."""
    here, there = (folder / "data" / "tokens" for folder in (shared_world.project, shared_world.there))
    here.rename(here.with_name("away"))
    try:
        code, out = shared_world.remote("sync", "little")
        assert code == 2, out
        assert "is up to date" in out
        assert out.splitlines()[-1].startswith(
            f"oelm: data/tokens: neither here nor on {HOST}, and the study needs it there"
        )
        shutil.copytree(here.with_name("away"), there)
        assert shared_world.must("sync", "little").endswith(f"data/tokens: already on {HOST}, and used from there\n")
    finally:
        here.with_name("away").rename(here)


def test_a_package_that_is_missing_there_is_named_without_pythons_words(shared_world, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'pydantic.fields'\" >&2; exit 1\n")
    python.chmod(0o755)
    file = shared_world.project / "remotes.yaml"
    before = file.read_text()
    file.write_text(before.replace(sys.executable, str(python)))
    code, out = shared_world.remote("status", "little")
    file.write_text(before)
    assert code == 2
    assert out == (f"oelm: {HOST}: its Python has no pydantic; `oelm remote {HOST} check` says how to install it\n")


def test_the_four_verbs_of_the_shell_file(shared_world):
    """After the study of the first test, which is finished: nothing is started again."""
    shutil.copy(REPOSITORY / "mlda-run.sh", shared_world.project)
    environment = {"OELM_PYTHON": sys.executable, "OELM_HOST": HOST, "OELM_STUDY": "little"}

    def verb(*words: str) -> str:
        done = subprocess.run(
            ["./mlda-run.sh", *words],
            cwd=shared_world.project,
            env=shared_world.environment() | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "tracked files" in verb("sync")
    assert "little: final 2/2 finished" in verb("train-both", "--slots", "1")
    assert "little: final 2/2 finished" in verb("status")
    assert "finished: validation loss" in verb("logs")


def test_a_study_on_the_cpu_runs_there_although_the_entry_names_gpus(shared_world):
    file = shared_world.project / "remotes.yaml"
    before = file.read_text()
    remotes = yaml.safe_load(before)
    remotes[HOST]["gpus"] = [0, 2]
    file.write_text(yaml.safe_dump(remotes))
    assert "little: final 2/2 finished" in shared_world.must("run", "little")
    file.write_text(before)


def test_run_says_that_the_code_here_is_not_the_code_that_was_sent(shared_world):
    shared_world.must("sync")
    assert "changed since" not in shared_world.must("run", "little")
    with open(shared_world.project / "src" / "oelm" / "core" / "seeding.py", "a") as source:
        source.write("# changed\n")
    last = shared_world.must("run", "little").splitlines()[-1]
    assert last.startswith(
        "note: 1 tracked file has changed since it was sent (src/oelm/core/seeding.py); the runs there use"
    )
    shared_world.must("sync")
    assert "changed since" not in shared_world.must("run", "little")


def test_runs_that_outlive_their_killed_controller_are_not_trained_here_a_second_time(shared_world):
    world = shared_world
    add_study(world, "orphan", steps=1_000_000)
    world.must("sync", "orphan")
    world.must("run", "orphan")
    there = world.there / "runs" / "orphan"
    eventually(lambda: list(there.glob("*/metrics.jsonl")), what="a run under way")
    os.kill(at_work(there).process.pid, signal.SIGKILL)
    assert "no controller on" in world.must("pull", "orphan")
    code, out = world.oelm("run", "orphan")
    assert code == 2, out
    assert f"is being run on {HOST}" in out
    world.must("stop", "orphan")
    assert "no controller on" not in world.must("pull", "orphan")
