"""M1: memory, inodes, file size and open files that run out are named in one line, by real limits and a real disk."""

from __future__ import annotations

import random
import re
import subprocess
import sys

import pytest
from runs import assert_equal_runs, assert_refused, training, whole_steps

from warm import Ended, environment

# Runs just before the third checkpoint is saved.
BEFORE_A_SAVE = """
import errno, os, resource, oelm.run.training.driver as driver
def exhaust():
{exhaust}
save, calls = driver.save_checkpoint, 0
def saving(*arguments, **options):
    global calls
    calls += 1
    if calls == 3:
        exhaust()
    return save(*arguments, **options)
driver.save_checkpoint = saving
"""

USE_UP_INODES = """
    for number in range(10**6):
        try:
            open(os.path.join({ballast!r}, str(number)), "x").close()
        except OSError as error:
            assert error.errno == errno.ENOSPC
            break
"""
LIMIT_FILE_SIZE = "    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))"
LIMIT_OPEN_FILES = """
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, 4096))
"""

# Beyond what the process has mapped already.
LIMIT_MEMORY = """
import resource
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + {extra}, held + {extra}))
"""
LARGER = {"d_model": 256, "seq_len": 64, "batch_size": 16, "training.steps": 6}


def assert_one_line(ended: Ended, expected: str) -> None:
    assert_refused(ended)
    assert re.fullmatch(f"oelm: {expected}", ended.err.strip()), ended.text


def assert_it_goes_on(server, words: list[str], run, reference) -> None:
    whole_steps(run)
    again = server.run(*words)
    assert again.code == 0, again.text
    assert_equal_runs(run, reference)


def test_a_disk_without_inodes_is_not_called_full(server, data, reference, mounted):
    disk = mounted("size=16m,nr_inodes=100")
    run, ballast = disk / "run", disk / "ballast"
    ballast.mkdir()
    words = training(run, data)
    ended = server.run(*words, patch=BEFORE_A_SAVE.format(exhaust=USE_UP_INODES.format(ballast=str(ballast))))
    assert_one_line(
        ended, r"\S+: no inodes left: 1\d\.\d MiB are free, but the disk has no room for more files .*df -i.*"
    )
    for file in ballast.iterdir():
        file.unlink()
    assert_it_goes_on(server, words, run, reference)


def test_a_disk_without_inodes_from_the_beginning_is_found_before_training(server, data, mounted):
    disk = mounted("size=16m,nr_inodes=2")
    (disk / "ballast").touch()
    assert_one_line(server.run(*training(disk / "run", data)), r"\S+: no inodes left: .*")


@pytest.mark.parametrize(
    ("exhaust", "expected"),
    [
        (LIMIT_FILE_SIZE, r"\S+: a file would become larger than 5\.9 KiB, the limit of the shell \(ulimit -f\); .*"),
        (
            LIMIT_OPEN_FILES,
            r"open files: this process may open \d+ at a time and has reached that limit \(ulimit -n\); .*",
        ),
    ],
    ids=["file size", "open files"],
)
def test_a_limit_of_the_shell_is_named_and_without_it_the_run_goes_on(
    server, data, reference, tmp_path, exhaust, expected
):
    run, words = tmp_path / "run", training(tmp_path / "run", data)
    assert_one_line(server.run(*words, patch=BEFORE_A_SAVE.format(exhaust=exhaust)), expected)
    assert_it_goes_on(server, words, run, reference)


def limited(limit: str, soft: int, hard: int, *words: str) -> Ended:
    """A process of its own, as `ulimit` starts it: what fails inside a library has no words of ours."""
    code = (
        f"import resource, runpy, sys; resource.setrlimit(resource.{limit}, ({soft}, {hard})); "
        "sys.argv[0] = 'oelm'; runpy.run_module('oelm', run_name='__main__')"
    )
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    return Ended(done.returncode, done.stdout, done.stderr)


def test_too_few_open_files_for_anything_are_refused_first():
    ended = limited("RLIMIT_NOFILE", 4, 4096, "--version")
    assert_one_line(ended, r"open files: the shell allows 4 at a time \(ulimit -n\), and oelm needs at least 64; .*")
    assert ended.out == ""


def test_preparing_data_under_a_limit_of_file_size(server, tmp_path):
    words = ["prepare", "stories", "--stories", "300", "--workers", "1", "--out", tmp_path / "data"]
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))"
    assert_refused(server.run(*words, patch=limit), "8.8 KiB", "(ulimit -f)")
    assert not (tmp_path / "data").exists()


# ---- Memory --------------------------------------------------------------------------------------------------------


def ended_under_a_memory_limit(server, data, run, extra: int) -> bool:
    """Whether it ran out; if so, in one line, with what to lower."""
    ended = server.run(*training(run, data, **LARGER), patch=LIMIT_MEMORY.format(extra=extra))
    if ended.code == 0:
        return False
    assert_one_line(ended, r"memory: .* \(ulimit -v\).* (reduce|lower) .*micro_batch_size.*")
    return True


@pytest.mark.parametrize("extra_mib", [0, 64])
def test_address_space_that_runs_out_is_one_line(server, data, tmp_path, extra_mib):
    assert ended_under_a_memory_limit(server, data, tmp_path / "run", extra_mib * 2**20)


def test_too_little_address_space_for_torch_is_one_line(data, tmp_path):
    """Torch would end it by SIGSEGV or SIGABRT."""
    ended = limited("RLIMIT_AS", 500 * 2**20, 500 * 2**20, *training(tmp_path / "run", data))
    assert_one_line(ended, r"memory: the shell allows 500\.0 MiB .*torch alone needs.*")


@pytest.mark.trial
def test_many_limits_of_address_space(server, data, tmp_path, say):
    draw, ran_out = random.Random(1), 0
    for number in range(40):
        extra = draw.randrange(0, 160 * 2**20)
        ran_out += ended_under_a_memory_limit(server, data, tmp_path / str(number), extra)
    say(f"M1: 40 limits of address space, {ran_out} ran out, each one line")
