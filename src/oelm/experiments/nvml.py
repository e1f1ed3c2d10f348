"""`python -m oelm.experiments.nvml`: the GPUs as NVML knows them, MIG slices included, as one line of JSON.

In a process of its own, because a driver in trouble lets a call wait for ever. NVML numbers GPUs by their bus, as
nvidia-smi does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any


def listed(nvml: Any) -> list[dict[str, Any]]:
    nvml.nvmlInit()
    handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
    return [entry for number, handle in enumerate(handles) for entry in _entries(nvml, number, handle)]


def _entries(nvml: Any, number: int, handle: Any) -> list[dict[str, Any]]:
    """A GPU, or its MIG slices. One that is to be divided and has no slice yet can run nothing."""
    if not _is_divided(nvml, handle):
        return [_entry(nvml, str(number), handle)]
    slices = list(_slices(nvml, number, handle))  # of the whole of it only an administrator may ask
    return slices or [_nothing_known(nvml, str(number), handle) | {"is_divided": True}]


def _is_divided(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:  # it cannot be
        return False


def _slices(nvml: Any, number: int, handle: Any) -> Iterator[dict[str, Any]]:
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except nvml.NVMLError:
            continue  # a place without a slice
        yield _entry(nvml, f"{number}:{place}", part) | {"is_slice": True}


def _entry(nvml: Any, index: str, handle: Any) -> dict[str, Any]:
    memory = _memory(nvml, handle)
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return _nothing_known(nvml, index, handle) | {
        "used_mib": memory.used // 2**20,
        "total_mib": memory.total // 2**20,
        "processes": [[process.pid, (process.usedGpuMemory or 0) // 2**20] for process in processes],
    }


def _nothing_known(nvml: Any, index: str, handle: Any) -> dict[str, Any]:
    """But what it is called."""
    return {
        "index": index,
        "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
        "name": _text(nvml.nvmlDeviceGetName(handle)),
        "used_mib": 0,
        "total_mib": 0,
        "is_slice": False,
        "is_divided": False,
        "processes": [],
    }


def _memory(nvml: Any, handle: Any) -> Any:
    """The second version counts as used what processes use; the first also what the driver reserves on an idle GPU."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except (nvml.NVMLError, AttributeError, TypeError):  # a driver or a package that does not know it
        return nvml.nvmlDeviceGetMemoryInfo(handle)


def _text(value: str | bytes) -> str:
    """Versions before 12 answer in bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def main() -> None:
    import pynvml  # an extra

    try:
        print(json.dumps(listed(pynvml)), flush=True)
    except pynvml.NVMLError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
