"""An engine is one file and one row: with a third one every verb of a study works, and none of them was told of it."""

import json
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from test_controller import results, write_study

from oelm.execution.engine import Start, withdraw
from oelm.execution.engines import ENGINES, engine_named
from oelm.execution.handles import StudyEngines
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.storage.files import write_json
from oelm.storage.ownership import START_VARIABLE
from small_runs import PATIENCE, child_environment, oelm_command, warm_script
from wanted_runs import wanted_run


def with_the_spool(folder: Path, *words: object) -> tuple[int, str]:
    """`oelm`, with one more row in the table of engines."""
    done = warm_script(str(Path(__file__).with_name("spool_engine.py")), *words, timeout=PATIENCE, cwd=folder)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def spooled(token_folder, tmp_path_factory):
    """A study of which two runs wait in the spool."""
    folder = tmp_path_factory.mktemp("spooled")
    file = write_study(folder, token_folder, seeds=[0])
    code, out = with_the_spool(folder, "run", file, "--on", "spool", "--dry-run")
    assert code == 0, out
    assert "trained s0: a ticket\nfrozen_head_orthogonal s0: a ticket\n" in out
    assert not (folder / "runs").exists()
    code, out = with_the_spool(folder, "run", file, "--on", "spool", "--no-wait")
    assert code == 0, out
    assert "little: final 0/2 finished (2 queued)" in out
    return folder, file


def test_what_waits_with_an_engine_is_shown_and_not_started_again_by_any(spooled):
    folder, file = spooled
    _, out = with_the_spool(folder, "status", file)
    assert out.count("queued       step 0/4  ticket ") == 2, out
    _, out = with_the_spool(folder, "status")
    assert out == "runs/little: 2 queued\n"
    _, out = with_the_spool(folder, "run", file, "--on", "spool", "--no-wait")
    assert (out.count("already waiting (ticket"), out.count(": started")) == (2, 0), out
    _, out = with_the_spool(folder, "run", file, "--dry-run")  # on this machine
    assert out.count("already waiting (ticket") == 2
    assert "nothing to start now" in out


def test_an_engine_that_this_version_does_not_have_is_asked_of_once(spooled):
    """As after going back to an older version: its runs are not started a second time."""
    folder, file = spooled
    done = oelm_command("status", file, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no such engine") == 1
    assert done.stdout.count("'spool': no answer") == 2
    with pytest.raises(UserError, match="was given to 'spool', which cannot be asked"):
        StudyEngines(folder).found(RunDirectory(next((folder / "runs/little").glob("*/slot.json")).parent))


def test_a_start_tells_the_run_its_name():
    """By its environment, and by its line in any shell."""
    start = Start("this one", [sys.executable, "-c", f"import os; print(os.environ[{START_VARIABLE!r}])"])
    for way in ({"args": start.command, "env": start.environment}, {"args": start.line, "shell": True}):
        assert subprocess.run(**way, capture_output=True, text=True, check=True).stdout == "this one\n"


def test_an_option_that_an_engine_would_pass_over_is_refused(spooled):
    folder, file = spooled
    code, out = with_the_spool(folder, "run", file, "--on", "spool", "--dry-run", "--slots", 3)
    assert (code, out) == (2, "oelm: --slots: is not for --on spool; leave it out\n")


@pytest.mark.parametrize("change", [{"start": 7}, {"kind": []}])
def test_a_run_whose_handle_is_damaged_is_not_started_again(token_folder, tmp_path, change):
    """Nobody but the handle knows that the spool has it."""
    file = write_study(tmp_path, token_folder, seeds=[0])
    with_the_spool(tmp_path, "run", file, "--on", "spool", "--no-wait")
    handle = sorted((tmp_path / "runs/little").glob("*/slot.json"))[0]
    write_json(handle, json.loads(handle.read_text()) | change)
    said = f"{handle.relative_to(tmp_path)}: damaged: {next(iter(change))}"
    code, out = with_the_spool(tmp_path, "status", file)
    assert code == 0, out
    assert out.count(said) == 1
    assert "final 0/2 finished (2 queued)" in out
    for words in (["--on", "spool", "--no-wait"], ["--dry-run"]):
        _, out = with_the_spool(tmp_path, "run", file, *words)
        assert (out.count(said), out.count("already waiting"), out.count(": started")) == (1, 1, 0), out
    code, out = with_the_spool(tmp_path, "stop", file)
    assert (code, out.count(said)) == (2, 1), out
    assert "taking 1 out of the queue" in out


def test_stop_takes_runs_out_of_the_queue_and_they_are_missing_again(token_folder, tmp_path):
    file = write_study(tmp_path, token_folder, seeds=[0])
    with_the_spool(tmp_path, "run", file, "--on", "spool", "--no-wait")
    code, out = with_the_spool(tmp_path, "stop", file)
    assert code == 0, out
    assert "saving and stopping 0 runs, taking 2 out of the queue" in out
    assert list((tmp_path / "runs/little").glob("*-s0-*")) == []
    assert "final 0/2 finished (2 missing)" in with_the_spool(tmp_path, "status", file)[1]


def test_a_study_runs_to_its_end_with_an_engine_that_nobody_was_told_of(token_folder, tmp_path):
    file = write_study(tmp_path, token_folder, arms=["trained"], seeds=[0])
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.1):
            for ticket in (tmp_path / "runs/little").glob("*.ticket"):
                command = shlex.split(ticket.read_text())
                subprocess.run(command, cwd=tmp_path, env=child_environment(), capture_output=True, check=False)
                ticket.unlink()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        code, out = with_the_spool(tmp_path, "run", file, "--on", "spool")
    finally:
        ended.set()
        worker.join()
    assert code == 0, out
    assert len(results(tmp_path)) == 1


def test_a_submission_that_was_killed_leaves_nothing_queued(spooled):
    """Prepared, and never given to the engine."""
    folder, file = spooled
    ticket = sorted((folder / "runs/little").glob("*.ticket"))[0]
    kept = ticket.read_text()
    ticket.unlink()
    try:
        assert "final 0/2 finished (1 missing, 1 queued)" in with_the_spool(folder, "status", file)[1]
        assert with_the_spool(folder, "status")[1] == "runs/little: 1 missing, 1 queued\n"
    finally:
        ticket.write_text(kept)


# ---- The table -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENGINES)
def test_a_row_leads_to_its_engine(name, tmp_path):
    engine = engine_named(name, tmp_path)
    assert engine.kind == name
    assert engine.folder == tmp_path


def test_an_engine_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(UserError, match="--on nowhere: no such engine; known engines: local, slurm"):
        engine_named("nowhere", tmp_path)


# ---- What was prepared and comes to nothing --------------------------------------------------------------------------


def test_a_run_that_never_began_is_withdrawn_without_a_trace(tmp_path):
    run = wanted_run(tmp_path / "runs" / "mine")
    run.prepare()
    write_json(run.directory.handle_file, {"kind": "slurm", "name": "x", "task": 0})
    withdraw(run.directory)
    assert not run.directory.path.exists()


@pytest.mark.parametrize("sign", ["status.json", "metrics.jsonl", "output.log", "lock.json"])
def test_of_a_run_that_began_nothing_is_withdrawn_but_its_handle(tmp_path, sign):
    run = wanted_run(tmp_path / "runs" / "mine")
    run.prepare()
    write_json(run.directory.handle_file, {"kind": "slurm", "name": "x", "task": 0})
    if sign == "status.json":
        run.directory.write_status("interrupted")
    elif sign == "lock.json":
        with run.directory.locked():
            check_withdrawn(run.directory)
        return
    else:
        (run.directory.path / sign).write_text("something\n")
    check_withdrawn(run.directory)


def check_withdrawn(directory: RunDirectory) -> None:
    before = set(os.listdir(directory.path))
    withdraw(directory)
    assert before - set(os.listdir(directory.path)) == {directory.handle_file.name}
