"""A CUDA device that does not exist, for steps over fake tensors: it sees devices, types, host reads, bytes and graphs.

It sees no numbers, no choice of kernels, and no waiting inside them. `load` must come before torch is imported, so
whatever uses it is a program of its own; `built` compiles the few lines of C++ that it needs.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

SOURCE = Path(__file__).with_name("device.cpp")


def missing() -> str | None:
    """Why there is no such device here."""
    if shutil.which("g++") is None:
        return "for tests/fake_cuda/device.cpp: apt-get install g++"
    if not (_torch() / "include" / "ATen" / "detail" / "CUDAHooksInterface.h").is_file():
        return "torch has come without its C++ headers"
    return None


def _torch() -> Path:
    """Where torch is, without importing it."""
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def built(folder: Path) -> Path:
    library, torch = folder / "device.so", _torch()
    command = [
        "g++",
        "-O1",
        "-shared",
        "-fPIC",
        "-std=c++20",
        f"-I{torch / 'include'}",
        str(SOURCE),
        "-o",
        str(library),
    ]
    subprocess.run(
        [*command, f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch / 'lib'}"],
        check=True,
        capture_output=True,
        text=True,
    )
    return library


def load(library: str) -> None:
    """The device, and the parts of torch.cuda that a step uses and that would ask a driver."""
    ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    import torch

    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    torch.cuda._lazy_init = lambda: None
    torch.cuda.synchronize = lambda *given: None
    torch.cuda.get_rng_state = lambda *given: torch.zeros(16, dtype=torch.uint8)
    torch.cuda.set_rng_state = lambda *given: None
    torch.cuda.manual_seed_all = lambda seed: None
    torch.accelerator.is_available = lambda: False  # its streams ask the driver
    torch.Tensor.pin_memory = lambda self, *given: self
    torch.cuda.get_device_properties = lambda *given: SimpleNamespace(
        total_memory=24 * 2**30, name="imaginary", major=8
    )
    torch.cuda.set_device = lambda *given: None
