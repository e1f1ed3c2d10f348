"""What the fault tests share: warm processes, tiny data, one uninterrupted run, real small and read-only disks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patches import DIE_AT_STEP
from ranks import STEPS, Group
from runs import training, write_tokens

from warm import LIGHT, NO_TORCH, Ended, WarmServer, shared_server


@pytest.fixture
def say(capsys) -> Callable[[str], None]:
    """What a trial has counted, for docs/reliability.md."""

    def shown(line: str) -> None:
        with capsys.disabled():
            print(f"\n  {line}", flush=True)

    return shown


@pytest.fixture(scope="session")
def server() -> WarmServer:
    return shared_server()


@pytest.fixture(scope="session")
def without_torch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Ended]]:
    """Commands that must give their answer before torch is imported."""
    started = WarmServer(tmp_path_factory.mktemp("light"), modules=LIGHT)

    def run(*arguments: object, cwd: Path) -> Ended:
        return started.run(*arguments, cwd=cwd, patch=NO_TORCH, seconds=30)

    yield run
    started.close()


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokens(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def reference(server: WarmServer, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed. Never write into it: copy it."""
    out = tmp_path_factory.mktemp("reference") / "run"
    ended = server.run(*training(out, data))
    assert ended.code == 0, ended.text
    return out


@pytest.fixture(scope="session")
def reference_of_two(server: WarmServer, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, of two processes."""
    folder = tmp_path_factory.mktemp("ranks")
    ended = Group(server, folder / "started", *training(folder / "run", data, **STEPS)).wait()
    assert ended.code == 0, ended.text
    return folder / "run"


@pytest.fixture(scope="session")
def _stopped(server: WarmServer, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("stopped") / "run"
    ended = server.run(*training(out, data), patch=DIE_AT_STEP.format(step=32))
    assert ended.code == -9, ended.text
    return out


@pytest.fixture
def stopped(_stopped: Path, tmp_path: Path) -> Path:
    """A copy of a run killed at step 32 of 40, with checkpoints at steps 21 and 28."""
    return Path(shutil.copytree(_stopped, tmp_path / "run"))


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """A real tmpfs with the given options, or a skip where mounting is not permitted."""
    places: list[Path] = []

    def mount(options: str, place: Path | None = None) -> Path:
        place = place or tmp_path / f"mount-{len(places)}"
        place.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"mounting a tmpfs is not permitted here: {done.stderr.strip()}")
        places.append(place)
        return place

    yield mount
    for place in places:
        subprocess.run(["umount", "--lazy", place], check=True)
