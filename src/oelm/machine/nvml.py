"""`python -m oelm.machine.nvml`: the GPUs as NVML knows them, as one line of JSON.

In a process of its own, because a driver in trouble lets a call wait for ever. NVML numbers GPUs by their bus, as
nvidia-smi does.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def listed(nvml: Any) -> list[dict[str, Any]]:
    nvml.nvmlInit()
    handles = [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
    return [_entry(nvml, str(number), handle) for number, handle in enumerate(handles)]


def _entry(nvml: Any, index: str, handle: Any) -> dict[str, Any]:
    called = {
        "index": index,
        "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
        "name": _text(nvml.nvmlDeviceGetName(handle)),
    }
    if _is_divided(nvml, handle):  # only an administrator may ask for more
        return called | {"used_mib": 0, "total_mib": 0, "processes": [], "is_divided": True}
    memory = _memory(nvml, handle)
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return called | {
        "used_mib": memory.used // 2**20,
        "total_mib": memory.total // 2**20,
        "processes": [[process.pid, (process.usedGpuMemory or 0) // 2**20] for process in processes],
    }


def _is_divided(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:  # it cannot be
        return False


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
