"""W1: a folder that is replaced as a whole, whatever kills its writer; and what is not ours in it stays."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oelm.machine.errors import UserError
from oelm.storage import whole_folder
from oelm.storage.files import write_bytes
from oelm.storage.whole_folder import replacing
from small_runs import child_environment

OURS = re.compile(r"mark|report\.(md|pdf)|figures|figures/\d+\.svg")
NAMES = ["mark", "report.md", "report.pdf", "figures/1.svg", "figures/2.svg"]


def write(out: Path, generation: str, *, broken: bool = False) -> None:
    with replacing(out, ours=OURS, mark="mark") as folder:
        (folder / "figures").mkdir()
        for name in NAMES:
            write_bytes(folder / name, generation.encode())
        if broken:
            raise ZeroDivisionError


def generations(out: Path) -> set[str]:
    return {(out / name).read_text() for name in NAMES}


def beside(out: Path) -> list[str]:
    return [path.name for path in out.parent.iterdir() if path != out]


@pytest.fixture
def place(tmp_path) -> Path:
    (tmp_path / "reports").mkdir()
    return tmp_path / "reports" / "demo"


def test_a_failure_leaves_the_old_folder(place):
    with pytest.raises(ZeroDivisionError):
        write(place, "first", broken=True)
    assert not place.exists()
    write(place, "first")
    with pytest.raises(ZeroDivisionError):
        write(place, "second", broken=True)
    assert generations(place) == {"first"}
    assert beside(place) == []


def test_what_is_somebodys_stays_and_what_an_older_one_had_is_gone(place):
    write(place, "first")
    (place / "figures" / "3.svg").write_text("old")  # ours, which the second has not
    (place / "notes.md").write_text("mine")
    (place / "figures" / "own.svg").write_text("mine")
    (place / "folder").mkdir()
    (place / "folder" / "inner").write_text("mine")
    (place / "link").symlink_to("/nowhere")
    write(place, "second")
    assert generations(place) == {"second"}
    for name in ("notes.md", "figures/own.svg", "folder/inner"):
        assert (place / name).read_text() == "mine"
    assert os.readlink(place / "link") == "/nowhere"
    assert sorted(path.name for path in (place / "figures").iterdir()) == ["1.svg", "2.svg", "own.svg"]
    assert beside(place) == []


def test_a_folder_that_is_not_ours_is_refused(place):
    place.mkdir()
    (place / "thesis.tex").write_text("mine")
    with pytest.raises(
        UserError, match=r"contains files that are not part of a report \(thesis\.tex\); choose another"
    ):
        write(place, "first")
    assert (place / "thesis.tex").read_text() == "mine"


def test_a_link_to_a_folder_stays_a_link(place, tmp_path):
    (tmp_path / "disk" / "real").mkdir(parents=True)
    place.symlink_to(tmp_path / "disk" / "real")
    for generation in ("first", "second"):
        write(place, generation)
    assert place.is_symlink()
    assert generations(tmp_path / "disk" / "real") == {"second"}


def test_links_in_the_folder_are_not_followed(place, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "1.svg").write_text("mine")
    write(place, "first")
    for name in ("report.md", "mark"):
        (place / name).unlink()
        (place / name).symlink_to(precious / "1.svg")
    for file in (place / "figures").iterdir():
        file.unlink()
    (place / "figures").rmdir()
    (place / "figures").symlink_to(precious)
    (place.parent / f".partial-{os.getpid()}-demo").symlink_to(precious)
    write(place, "second")
    assert generations(place) == {"second"}
    assert {path.name: path.read_text() for path in precious.iterdir()} == {"1.svg": "mine"}


def test_the_folder_one_is_in_is_refused(place, monkeypatch):
    write(place, "first")
    monkeypatch.chdir(place / "figures")
    with pytest.raises(UserError, match="contains the current folder"):
        write(place, "second")


# ---- Killed --------------------------------------------------------------------------------------------------------

WRITER = """
import sys, time
from pathlib import Path
sys.path += sys.argv[2:]
import test_whole_folder as t
print("ready", flush=True)
for generation in range(10**9):
    t.write(Path(sys.argv[1]), str(generation))
"""


def writing(place: Path) -> subprocess.Popen[str]:
    here = Path(__file__).parent
    command = [sys.executable, "-c", WRITER, str(place), str(here), str(here.parent)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, env=child_environment(), text=True)
    assert writer.stdout.readline() == "ready\n"
    return writer


def killed_trials(place: Path, *, trials: int, seed: int) -> tuple[int, int]:
    """Kill a process that writes and writes; returns how often a half-made folder was left, and how often none."""
    draw, unfinished, absent = random.Random(seed), 0, 0
    write(place, "begin")
    (place / "notes.md").write_text("mine")
    (place / "folder").mkdir()
    (place / "folder" / "inner").write_text("mine")
    for _ in range(trials):
        with writing(place) as writer:
            time.sleep(draw.random() * 0.05)
            writer.send_signal(signal.SIGKILL)
        unfinished += bool(beside(place))
        absent += not place.exists()
        if place.exists():
            assert len(generations(place)) == 1
        write(place, "recovered")
        assert generations(place) == {"recovered"}
        assert (place / "notes.md").read_text() == (place / "folder" / "inner").read_text() == "mine"
        assert beside(place) == []
    return unfinished, absent


def test_killed_anywhere_the_folder_is_whole_or_put_back(tmp_path):
    killed_trials(tmp_path / "demo", trials=5, seed=1)


@pytest.mark.trial
def test_killed_many_times_the_folder_is_whole_or_put_back(tmp_path):
    unfinished, absent = killed_trials(tmp_path / "demo", trials=60, seed=2)
    print(f"60 kills, {unfinished} inside a replacement, {absent} with no folder until the next call")
    assert unfinished > 5


@pytest.mark.parametrize("broken", [True, False])
def test_killed_between_its_two_renames_the_next_call_puts_the_old_one_back(place, broken):
    write(place, "first")
    (place / "notes.md").write_text("mine")
    os.rename(place, whole_folder._aside(place))
    with contextlib.suppress(ZeroDivisionError):
        write(place, "second", broken=broken)
    assert generations(place) == {"first" if broken else "second"}
    assert (place / "notes.md").read_text() == "mine"
    assert beside(place) == []


def test_a_reader_never_sees_two_generations(tmp_path):
    """Through one descriptor of the folder, as it was opened."""
    out = tmp_path / "demo"
    write(out, "begin")
    writer, looks, mixed = writing(out), 0, []
    try:
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            try:
                folder = os.open(out, os.O_RDONLY)
            except FileNotFoundError:  # between two renames
                continue
            found = set()
            with contextlib.suppress(FileNotFoundError):  # the old one, being deleted
                for name in ("report.md", "report.pdf"):
                    with open(os.open(name, os.O_RDONLY, dir_fd=folder)) as stream:
                        found.add(stream.read())
                looks += 1
            mixed += [found] if len(found) > 1 else []
            os.close(folder)
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    assert looks > 20
    assert mixed == []


# ---- Full ----------------------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_old_folder(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted here: {done.stderr.strip()}")
    try:
        write(disk / "demo", "first")
        with pytest.raises(OSError, match="No space left"):
            write(disk / "demo", "second" * 20_000)
        assert generations(disk / "demo") == {"first"}
        assert beside(disk / "demo") == []
        with pytest.raises(UserError, match="is a mount point"):
            write(disk, "first")
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
