"""Systems without Linux's parts: each is made absent here. What needs it finds another way, or says that it cannot."""

import ctypes
import errno
import fcntl
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import oelm
from oelm.machine import system
from oelm.machine.errors import UserError
from oelm.machine.exhaustion import limit_of, what_ran_out
from oelm.run.training.device import keep_pages
from oelm.storage.ownership import Owned, Process, owner_of, owning
from small_runs import VOCABULARY, finished, warm_python

PACKAGE = Path(oelm.__file__).parent


@pytest.fixture(params=["by ps", "without ps"])
def without_proc(request, tmp_path, monkeypatch):
    """As on macOS; and where not even ps is there."""
    monkeypatch.setattr(system, "PROC", tmp_path / "absent")
    if request.param == "without ps":
        monkeypatch.setenv("PATH", str(tmp_path))
    return request.param


def ended_process() -> subprocess.Popen:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child


def test_without_proc_live_and_dead_processes_are_told_apart(without_proc):
    us = Process.current()
    assert us.is_alive_here() is True
    assert Process.stored(us.__dict__).is_alive_here() is True
    assert Process.of(ended_process().pid).is_alive_here() is False
    assert Process.stored({"host": us.host, "boot_id": us.boot_id}).is_alive_here() is False


def test_without_proc_a_reused_number_and_a_zombie_are_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(system, "PROC", tmp_path / "absent")
    us = Process.current()
    assert Process.stored(us.__dict__ | {"pid_started": "Thu Jan 1 00:00:00 1970"}).is_alive_here() is False
    child = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.monotonic() + 60
    while system.process_started(child.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert system.process_started(child.pid) is None
    child.wait()


def test_without_proc_a_lock_names_its_owner(without_proc, tmp_path):
    file = tmp_path / "lock.json"
    with owning(file):
        assert owner_of(file).process == Process.current()
        with pytest.raises(Owned, match=f"pid {os.getpid()}"), owning(file):
            pass
    with owning(file):
        pass


def test_a_process_exists_by_its_number():
    assert system.process_exists(os.getpid())
    assert system.process_exists(1)
    assert not any(map(system.process_exists, (ended_process().pid, 0, -1, 10**30)))


def test_a_rest_ends_with_a_process_and_else_with_its_time():
    """Of a child that nobody has asked for its end yet, and of a number that is no process's any more."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert not system.rest_until_one_ends([child.pid, os.getpid()], 0.01)
        assert not system.rest_until_one_ends([], 0.01)
        child.stdin.close()
        assert system.rest_until_one_ends([os.getpid(), child.pid], 600) is hasattr(os, "pidfd_open")
        child.wait()
        assert system.rest_until_one_ends([os.getpid(), child.pid], 0.01) is hasattr(os, "pidfd_open")


def test_a_system_that_wakes_nobody_lets_them_rest(monkeypatch):
    """Neither one without such calls, nor a kernel that refuses them, is taken for an end."""

    def refused(pid: int) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    monkeypatch.setattr(os, "pidfd_open", refused, raising=False)
    assert not system.rest_until_one_ends([os.getpid()], 0.01)
    monkeypatch.delattr(os, "pidfd_open")
    assert not system.rest_until_one_ends([os.getpid()], 0.01)


def test_without_proc_the_machine_is_still_described(tmp_path, monkeypatch):
    monkeypatch.setattr(system, "PROC", tmp_path / "absent")
    assert system.mapped_bytes() == 0
    assert isinstance(system.processor(), str)
    assert system.peak_memory_bytes() > 2**20
    (tmp_path / "absent" / "self").mkdir(parents=True)
    (tmp_path / "absent" / "self" / "status").write_text("Name:\tpython\n")  # some kernels know no high-water mark
    assert system.peak_memory_bytes() > 2**20


def test_without_affinity_every_core_counts(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert system.usable_cores() == os.cpu_count()


def test_memory_that_no_system_tells_limits_nothing(tmp_path, monkeypatch):
    def unknown(name: str) -> int:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "sysconf", unknown)
    monkeypatch.setattr(system, "CGROUP_MEMORY", tmp_path / "absent")
    assert system.memory_bytes() is None
    assert what_ran_out(MemoryError()).startswith("memory: all memory of this machine is used up; ")
    system.CGROUP_MEMORY.write_text("4096\n")
    assert system.memory_bytes() == 4096


def test_the_file_behind_a_descriptor_is_its_own_where_the_system_says_it(tmp_path, monkeypatch):
    with (tmp_path / "there").open("w") as stream:
        assert system.file_behind(stream.fileno()) in (None, str(tmp_path / "there"))
        monkeypatch.setattr(system, "PROC", tmp_path)
        assert system.file_behind(stream.fileno()) is None


def test_a_limit_that_the_system_does_not_have_is_none():
    assert limit_of("NO_SUCH") is None
    assert limit_of("NOFILE") is None or limit_of("NOFILE") > 0


def test_without_mallopt_pages_are_kept_as_the_system_likes(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    keep_pages()


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refused(stream, how):
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "flock", refused)
    said = r"lock\.json: cannot be locked \(.*\): this file system has no locks"
    with pytest.raises(UserError, match=said), owning(tmp_path / "lock.json"):
        pass


def test_only_one_module_knows_where_linux_keeps_its_facts():
    """sent_program.py is sent alone to a server, which is a Linux machine."""
    for path in PACKAGE.rglob("*.py"):
        if path.name not in ("system.py", "sent_program.py"):
            assert not re.search(r"[\"']/(proc|sys)\b", path.read_text(encoding="utf-8")), path


# ---- Whole commands --------------------------------------------------------------------------------------------------

LIKE_MACOS = """
import ctypes, os, pathlib, sys
import oelm.machine.system
oelm.machine.system.PROC = oelm.machine.system.CGROUP_MEMORY = pathlib.Path("/absent")
del os.sched_getaffinity
import torch
whole = ctypes.CDLL
class Library:
    def __init__(self, library): self.library = library
    def __getattr__(self, name):
        if name in ("renameat2", "mallopt"): raise AttributeError(name)
        return getattr(self.library, name)
ctypes.CDLL = lambda name, *more, **options: Library(whole(name, *more, **options)) if name is None else whole(name)
"""
LIKE_WINDOWS = """
import os, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios"): sys.modules[name] = None
for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "statvfs", "sysconf", "getuid", "killpg",
             "getpgid", "sched_getaffinity"): delattr(os, name)
"""


def test_a_run_goes_its_way_without_linuxs_parts(token_folder, tmp_path):
    sizes = ("seq_len=16", "d_model=32", "num_layers=2", f"vocabulary={VOCABULARY}", "batch_size=4", "steps=2")
    words = ["oelm", "train", "--data", str(token_folder), "--out", str(tmp_path / "run")]
    words += [f"--set={pair}" for pair in (*sizes, "threads=1")]
    first = f"sys.argv = {words!r}\nfrom oelm.__main__ import main\ntry:\n    main()\n"
    again = "except SystemExit as end:\n    assert not end.code\nmain()"
    done = finished([sys.executable, "-c", LIKE_MACOS + first + again])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("this run is finished") == 1, done.stdout


@pytest.mark.parametrize("words", [["run", "demo"], ["--help"], []])
def test_a_system_without_locks_gets_one_line(words):
    code = f"{LIKE_WINDOWS}\nsys.argv = {['oelm', *words]!r}\nfrom oelm.__main__ import main\nmain()"
    done = finished([sys.executable, "-c", code])
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "the command needs Python's fcntl, resource, pwd" in line
    assert "WSL" in line
    assert all(name in line for name in system.WITHOUT_COMMANDS)


def test_without_proc_showing_a_command_does_nothing_and_threads_are_unknown(without_proc):
    system.show_command(["another", "command"])  # would write to where its arguments are
    assert system.threads_here() == 1


def test_what_the_line_promises_works_without_locks(tmp_path):
    pytest.importorskip("transformers", reason="pip install 'oelm[hf]'")
    code = f"""
import psutil, torch, transformers  # as they are on Linux: they have other ways on Windows
from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback
{LIKE_WINDOWS}
import oelm
from oelm.core.config import Model, Seeds
model = Model(vocabulary=64, seq_len=16, d_model=32, num_layers=2, num_heads=4, d_ff=64,
              parts=oelm.arm("frozen_head_orthogonal").parts)
gpt = oelm.build(model, Seeds())
print(oelm.diagnose(gpt).as_text())
given = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=4))
print(oelm.apply(given, "frozen_pretrained"))
oelm.FreezeCallback()
given.save_pretrained({str(tmp_path / "model")!r})
again = oelm.load({str(tmp_path / "model")!r})
assert sum(not each.requires_grad for each in again.parameters()), "nothing is frozen"
print("all of it")
"""
    done = warm_python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("all of it\n")
