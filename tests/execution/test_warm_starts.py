"""Warm starts: a forked run is what a cold start makes of it, and whoever dies, nothing is lost. Real processes."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from oelm.core.config import Settings
from oelm.execution import warm_server
from oelm.execution.engine import Wanted
from oelm.execution.local import LocalHandle, Unit, environment_on, started
from oelm.execution.warm_server import WarmRun, WarmStarts
from oelm.run.directory import RunDirectory
from oelm.storage.files import read_json
from oelm.study.plan import PlannedRun
from small_runs import child_environment, eventually, quiet_execution, small_run
from wanted_runs import wanted_run

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="starts are cold on other systems")

CORES = [Unit(0, None)]
# Clocks, and what differs from start to start.
TIMES = {"seconds", "validation_seconds", "training_seconds", "peak_memory_bytes"}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in child_environment().items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def warm(one_thread) -> Iterator[WarmStarts]:
    """One for all tests that leave it whole."""
    starts = WarmStarts()
    yield starts
    starts.close()


@pytest.fixture
def own() -> Iterator[WarmStarts]:
    """For tests that do it harm."""
    starts = WarmStarts()
    yield starts
    starts.close()


def on_cores() -> dict[str, str]:
    return {**os.environ, **environment_on(CORES)}


def run_at(path: Path, data: Path, **training: object) -> Wanted:
    settings = Settings(
        run=small_run("frozen_head_orthogonal", data=data, **training),
        execution=quiet_execution(log_every=1, checkpoint_every=5),
    )
    return Wanted(RunDirectory(path), PlannedRun("frozen_head_orthogonal", 0, "final", (), settings, 1, stored=None))


def ended(handle: LocalHandle) -> int | None:
    eventually(lambda: not handle.is_alive(), what="the end of a run")
    return handle.exit_code


def stepping(handle: LocalHandle, step: int = 1) -> LocalHandle:
    def has_come_so_far() -> bool:
        assert handle.is_alive(), handle.directory.output_file.read_text()
        return (handle.directory.last_metrics() or {}).get("step", 0) >= step

    eventually(has_come_so_far, what=f"step {step}")
    return handle


def killed(handle: LocalHandle) -> int | None:
    os.kill(handle.process.pid, signal.SIGKILL)
    return ended(handle)


def stored_bytes(path: Path) -> dict[tuple[str, str], bytes]:
    """Of every tensor: weights, moments and the best model."""
    return {
        (str(file.relative_to(path)), name): tensor.tobytes()
        for file in path.rglob("*.safetensors")
        for name, tensor in load_file(file).items()
    }


def metrics(path: Path) -> list[dict]:
    return [{key: value for key, value in each.items() if key not in TIMES} for each in RunDirectory(path).metrics()]


def assert_equal_runs(one: Path, other: Path) -> None:
    assert stored_bytes(one)
    assert stored_bytes(one) == stored_bytes(other)
    assert metrics(one) == metrics(other)
    assert read_json(one / "environment.json") == read_json(other / "environment.json")


@pytest.fixture(scope="module")
def reference(token_folder, tmp_path_factory) -> Path:
    """A cold run that nothing disturbed."""
    handle = started(run_at(tmp_path_factory.mktemp("cold") / "run", token_folder), CORES)
    assert isinstance(handle.child, subprocess.Popen)
    assert ended(handle) == 0, handle.directory.output_file.read_text()
    return handle.directory.path


# ---- What a run is -------------------------------------------------------------------------------------------------


def test_a_warm_run_is_bit_equal_to_a_cold_one(warm, token_folder, reference, tmp_path):
    """Weights, metrics, and what it says about itself: threads, versions, the digest of the sources."""
    handle = started(run_at(tmp_path / "run", token_folder), CORES, warm=warm)
    assert isinstance(handle.child, WarmRun)
    assert ended(handle) == 0, handle.directory.output_file.read_text()
    assert_equal_runs(tmp_path / "run", reference)
    assert handle.wrote(handle.directory.status())


def kernels_view(pid: int, folder: Path) -> dict[str, object]:
    """What /proc says of a process in its run's folder, without what differs between any two."""
    process = Path("/proc") / str(pid)
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
    opened = sorted(os.readlink(file).replace(str(folder), "RUN") for file in (process / "fd").iterdir())
    lasting = ("RUN/lock.json", "RUN/output.log")  # what else of its folder a run opens comes and goes
    opened = [name.partition(":[")[0] for name in opened if name in lasting or not name.startswith("RUN")]
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return {
        "signals": {name: status[name] for name in ("SigIgn", "SigCgt", "SigBlk", "SigPnd")},
        "umask": status["Umask"],
        "affinity": status["Cpus_allowed"],
        "name": status["Name"],
        "files": opened,
        "limits": (process / "limits").read_text(),
        "cwd": os.readlink(process / "cwd"),
        "program": os.readlink(process / "exe"),
        "groups": (os.getpgid(pid) == pid, os.getsid(pid) == pid),
        "terminal": fields[4],
        "nice": fields[16],
        "threads": status["Threads"],
    }


def test_the_kernel_sees_no_difference_between_a_warm_and_a_cold_run(warm, token_folder, tmp_path):
    """Session, group, open files, locks, signals, limits: all but who its parent is."""
    seen = []
    for name, starts in (("warm", warm), ("cold", None)):
        handle = stepping(started(run_at(tmp_path / name, token_folder, steps=100_000), CORES, warm=starts), 3)
        os.kill(handle.process.pid, signal.SIGSTOP)  # between two writes or in one, but not while we look
        seen.append(kernels_view(handle.process.pid, tmp_path / name))
        shown = subprocess.run(
            ["ps", "-ww", "-o", "args=", "-p", str(handle.process.pid)], capture_output=True, text=True
        )
        found = subprocess.run(["pgrep", "-f", str(tmp_path / name)], capture_output=True, text=True)
        assert killed(handle) == -signal.SIGKILL
        command = [sys.executable, "-m", "oelm", "train", str(tmp_path / name / "settings.json")]
        assert shown.stdout.split() == [*command, "--out", str(tmp_path / name)]
        assert found.stdout.split() == [str(handle.process.pid)]
    assert seen[0] == seen[1]


INSIDE = """
import atexit, json, os, sys

forked = []  # what had been imported then
os.register_at_fork(after_in_child=lambda: forked.append(set(sys.modules)))

def tell():
    out = sys.argv[sys.argv.index("--out") + 1]
    told = {"environment": dict(os.environ), "argv": sys.argv, "original": sys.orig_argv, "path": sys.path}
    told |= {"flags": list(sys.flags), "main": sys.modules["__main__"].__name__, "umask": os.umask(0o22)}
    open(out + ".json", "w").write(json.dumps(told))
    late = [sorted(set(sys.modules) - before) for before in forked]
    open(out + ".late.json", "w").write(json.dumps(late))

atexit.register(tell)
"""


def test_a_warm_run_sees_what_a_cold_one_sees_and_ends_like_it(token_folder, tmp_path, monkeypatch, own):
    """Its environment, its arguments, where it imports from; told by itself when Python ends, which is proper. What it
    imports was imported before the fork, but for a few modules of thousands.
    """
    (tmp_path / "sitecustomize.py").write_text(INSIDE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ['PYTHONPATH']}")
    monkeypatch.chdir(tmp_path)
    told, late = [], []
    for starts in (own, None):
        path = tmp_path / "runs" / ("cold" if starts is None else "warm")
        path.parent.mkdir(exist_ok=True)
        handle = started(run_at(path, token_folder, steps=2), CORES, warm=starts)
        assert ended(handle) == 0, handle.directory.output_file.read_text()
        text = path.with_suffix(".json").read_text().replace(str(path), "RUN").replace(handle.start, "START")
        told.append(json.loads(text))
        late += read_json(path.with_suffix(".late.json"))
    assert told[0] == told[1]
    assert told[0]["environment"]["OELM_START"] == "START"
    (after_the_fork,) = late
    assert len(after_the_fork) < 50, after_the_fork


WAYS_TO_END = {
    "with what is left to be done": """
import atexit, ctypes, threading, time
from concurrent.futures import ThreadPoolExecutor
ThreadPoolExecutor(1).submit(lambda: (time.sleep(0.5), print('in the pool')))
threading.Thread(target=lambda: (time.sleep(1), print('late'))).start()
atexit.register(int, 'no number')
for each in 'abc': atexit.register(print, each)
ctypes.CDLL(None).printf(b'of a library')
""",
    "nowhere to print": "import os\nos.dup2(os.open('/dev/full', os.O_WRONLY), 1)",
    "nothing to print to": "sys.stdout = None",
}


@pytest.mark.parametrize("last", WAYS_TO_END.values(), ids=WAYS_TO_END)
def test_a_warm_run_leaves_as_python_does(last):
    """By its code and its words; only what is freed at the end is not."""
    program = f"import sys\nfrom oelm.execution.warm_server import _leave\nprint('said', end='')\n{last}\n"
    ends = []
    for leave in ("_leave", "sys.exit"):
        end = subprocess.run([sys.executable, "-c", f"{program}{leave}(3)"], capture_output=True, text=True)
        words = [line for line in end.stderr.splitlines() if not line.startswith(("Traceback", "  "))]  # by another way
        ends.append((end.returncode, end.stdout, words))
    assert ends[0] == ends[1]


def test_a_failed_warm_run_says_why_in_its_own_log_and_ends_with_its_code(warm, tmp_path):
    codes, words = [], []
    for name, starts in (("warm", warm), ("cold", None)):
        handle = started(run_at(tmp_path / name, tmp_path / "nothing"), CORES, warm=starts)
        codes.append(ended(handle))
        words.append(handle.directory.output_file.read_text())
    assert codes[0] == codes[1] == 2
    assert words[0] == words[1]
    assert "nothing" in words[0]


# ---- Who dies ------------------------------------------------------------------------------------------------------


def test_a_killed_warm_run_dies_alone_and_resumes_bit_equal(warm, token_folder, reference, tmp_path):
    """K1, with a neighbour from the same process."""
    neighbour = stepping(started(run_at(tmp_path / "other", token_folder, steps=100_000), CORES, warm=warm))
    handle = stepping(started(run_at(tmp_path / "run", token_folder), CORES, warm=warm), 6)
    assert killed(handle) == -signal.SIGKILL
    assert handle.end == "killed by signal 9"
    assert neighbour.is_alive()
    again = started(run_at(tmp_path / "run", token_folder), CORES, warm=warm)
    assert isinstance(again.child, WarmRun)
    assert ended(again) == 0
    assert_equal_runs(tmp_path / "run", reference)
    killed(neighbour)


def test_a_signal_makes_a_warm_run_save_and_end(warm, token_folder, tmp_path):
    """K5: to its group, as its handle and a terminal send it."""
    handle = stepping(started(run_at(tmp_path / "run", token_folder, steps=100_000), CORES, warm=warm), 2)
    os.killpg(handle.process.pid, signal.SIGINT)
    assert ended(handle) == 130
    assert handle.directory.status()["state"] == "interrupted"
    assert handle.directory.stored_checkpoints()
    assert "resume with: oelm train" in handle.directory.output_file.read_text()


def test_runs_outlive_a_killed_server_and_starts_go_on_cold(own, token_folder, reference, tmp_path):
    handle = stepping(started(run_at(tmp_path / "run", token_folder, steps=2000), CORES, warm=own))
    handle.child.server.process.kill()
    handle.child.server.process.wait()
    assert handle.is_alive()
    next_one = started(run_at(tmp_path / "next", token_folder), CORES, warm=own)
    assert isinstance(next_one.child, subprocess.Popen)
    assert ended(next_one) == 0
    assert_equal_runs(tmp_path / "next", reference)
    assert killed(handle) is None  # nobody is left who was told
    assert handle.end == "ended without a message"


def test_a_server_that_does_not_answer_starts_nothing_and_the_run_begins_once(own, token_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(warm_server, "ANSWER_SECONDS", 0.3)
    own.get_ready(on_cores())
    server = own._server
    os.kill(server.process.pid, signal.SIGSTOP)
    handle = started(run_at(tmp_path / "run", token_folder), CORES, warm=own)
    assert isinstance(handle.child, subprocess.Popen)
    assert server.process.poll() == -signal.SIGKILL
    found = subprocess.run(["pgrep", "-f", str(tmp_path / "run")], capture_output=True, text=True)
    assert found.stdout.split() == [str(handle.process.pid)]
    killed(handle)


def test_a_server_that_cannot_import_leaves_starts_cold(token_folder, tmp_path, monkeypatch, own):
    monkeypatch.setattr(warm_server, "SERVER", "oelm.no_such_module")
    handle = started(run_at(tmp_path / "run", token_folder), CORES, warm=own)
    assert isinstance(handle.child, subprocess.Popen)
    killed(handle)


def test_a_run_whose_handle_was_not_stored_never_begins(warm, token_folder, tmp_path):
    """A controller killed between the fork and the handle: what it forked ends without a trace."""
    warm.get_ready(on_cores())
    wanted = run_at(tmp_path / "run", token_folder)
    start = wanted.prepare()
    with open(wanted.directory.output_file, "ab") as output:
        child = warm.begun(start.command, start.environment, output)
    assert child.poll() is None
    child.link.close()
    eventually(lambda: child.poll() is not None, what="its end")
    assert wanted.directory.status()["state"] == "queued"
    assert wanted.directory.output_file.read_text() == ""
    assert not wanted.directory.lock_file.exists()


# ---- What the process that forks keeps -------------------------------------------------------------------------------


def test_the_server_holds_nothing_of_its_runs_and_no_threads(warm, token_folder, tmp_path):
    handle = stepping(started(run_at(tmp_path / "run", token_folder, steps=100_000), CORES, warm=warm))
    server = Path("/proc") / str(handle.child.server.process.pid)
    assert {int(file.name) for file in (server / "fd").iterdir()} == {0, 1, 2}
    assert {os.readlink(server / "fd" / str(number)) for number in (1, 2)} == {os.devnull}
    assert len(list((server / "task").iterdir())) == 1
    assert killed(handle) == -signal.SIGKILL
    children = (server / "task" / server.name / "children").read_text().split()
    assert str(handle.process.pid) not in children  # no zombie


def test_runs_of_several_processes_and_runs_on_gpus_are_started_cold(tmp_path, monkeypatch):
    class Never(WarmStarts):
        def get_ready(self, environment):
            raise AssertionError("asked for")

    show = [sys.executable, "-c", "pass"]
    monkeypatch.setattr("oelm.execution.engine.train_command", lambda directory, processes: show)
    for number, (processes, unit) in enumerate([(2, Unit(0, None)), (1, Unit(0, "0"))]):
        handle = started(wanted_run(tmp_path / str(number), processes=processes), [unit] * processes, warm=Never())
        assert isinstance(handle.child, subprocess.Popen)
        assert ended(handle) == 0


def test_on_another_system_starts_are_cold(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    starts = WarmStarts()
    starts.get_ready(on_cores())
    assert starts.begun([sys.executable, "-m", "oelm"], {}, sys.stdout.buffer) is None


def test_another_source_environment_or_limit_is_what_the_next_run_has(token_folder, tmp_path, monkeypatch, own):
    """As of a cold start. The old server tells how its last run ended, and is gone after that."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "module.py").write_text("one")
    monkeypatch.setattr(warm_server, "PACKAGE", package)
    handle = started(run_at(tmp_path / "run", token_folder, steps=100_000), CORES, warm=own)
    first = handle.child.server
    own.get_ready(on_cores())
    assert own._server is first
    monkeypatch.setattr(warm_server.Server, "wait_until_ready", lambda self: None)
    (package / "module.py").write_text("two")
    own.get_ready(on_cores())
    second = own._server
    assert second is not first
    assert killed(handle) == -signal.SIGKILL
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    own.get_ready(on_cores())
    third = own._server
    assert third is not second
    now = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (now[0] - 1, now[1]))  # as `prlimit` does it from outside
    try:
        own.get_ready(on_cores())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, now)
    fourth = own._server
    assert fourth is not third
    assert [server.process.poll() for server in (first, second, third)] == [-signal.SIGKILL] * 3
    own.close()
    assert fourth.process.poll() == -signal.SIGKILL


def test_sources_edited_while_they_are_imported_are_not_run_under_their_new_digest(tmp_path, monkeypatch, own):
    """Some modules may be the old ones: that start is cold."""
    monkeypatch.setattr(warm_server, "PACKAGE", tmp_path)

    def edited(server: warm_server.Server) -> None:
        (tmp_path / "module.py").write_text("edited")

    monkeypatch.setattr(warm_server.Server, "wait_until_ready", edited)
    own.get_ready(on_cores())
    assert own.begun([sys.executable, "-m", "oelm"], {}, sys.stdout.buffer) is None
