"""What this machine computes with: device, precision, compiler, threads, memory. `auto` is resolved here, and said."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import sys
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oelm.core.accounting import training_flops
from oelm.core.config import Encoder, Execution, ResolvedRun
from oelm.machine.errors import UserError
from oelm.machine.exhaustion import limit_of
from oelm.machine.system import gpu_driver, lacking_to_compile, visible_gpus

COMPILE_WORTHWHILE_SECONDS = 600  # compiling takes about a minute and saves about a tenth
ASSUMED_FLOPS_PER_SECOND = {"cpu": 1e11, "cuda": 2e13}
THREADS_PER_CORE = 4
TOKENS_AT_ONCE = {"cpu": 8 * 512, "cuda": 32 * 1024}  # more are not faster
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")  # with which cuBLAS promises equal bits; the first is the faster one
NOT_DETERMINISTIC = "deterministic off: as requested; a resumed run may differ from an uninterrupted one"


@dataclass(frozen=True)
class Machine:
    """The resolved execution settings; recorded in environment.json, compared on resume."""

    device: str
    precision: str
    compile: bool
    threads: int
    micro_batch_size: int
    deterministic: bool = True
    tf32: bool = False

    def __str__(self) -> str:
        compiled = "compiled" if self.compile else "not compiled"
        return (
            f"device {self.device}, precision {self.precision}{' with TF32' * self.tf32}, {compiled}, "
            f"threads {self.threads}, micro-batch {self.micro_batch_size}"
            + ", not deterministic"
            * (not self.deterministic)
        )

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    @property
    def kind(self) -> str:
        return torch.device(self.device).type

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and optimizer state."""
        return torch.float64 if self.precision == "float64" else torch.float32

    def autocast(self) -> contextlib.AbstractContextManager[None]:
        return torch.autocast(self.kind, dtype=torch.bfloat16, enabled=self.precision == "bfloat16")

    def moved(self, values: np.ndarray) -> Tensor:
        """To the device; the copy to a GPU goes on while others compute."""
        tensor = torch.from_numpy(values)
        if self.kind == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def synchronize(self) -> None:
        """Wait for the device, so that a clock read afterwards has seen the work."""
        if self.kind == "cuda":
            torch.cuda.synchronize()
        elif self.kind == "mps":
            torch.mps.synchronize()
        elif _other_kernels:
            raise MemoryError(_other_kernels.pop())


def resolve_machine(
    execution: Execution, run: ResolvedRun, *, local_rank: int, world_size: int
) -> tuple[Machine, list[str]]:
    """The machine and the reasons behind each `auto`."""
    device = device_named(execution.device, local_rank=local_rank, world_size=world_size)
    most = THREADS_PER_CORE * (os.cpu_count() or 1)
    if execution.threads is not None and execution.threads > most:
        raise UserError(f"execution.threads: {execution.threads} is more than this machine can use ({most} at most)")
    kind = torch.device(device).type
    precision, precision_reason = _precision(execution, device)
    compiled, compile_reason = _compile(execution, run, kind, world_size)
    examples = execution.micro_batch_size or micro_batch(run, kind=kind, world_size=world_size)
    machine = Machine(
        device=device,
        precision=precision,
        compile=compiled,
        threads=execution.threads or torch.get_num_threads(),
        micro_batch_size=min(examples, -(-run.training.batch_size // world_size)),
        deterministic=execution.deterministic,
        tf32=execution.tf32,
    )
    reasons = [precision_reason, compile_reason]
    if execution.device == "auto" and kind == "cpu" and visible_gpus() is None and _unseen_gpus():
        reasons.append(f"device cpu: {_unseen_gpus()}")
    return machine, reasons if machine.deterministic else [*reasons, NOT_DETERMINISTIC]


# Short of memory, torch goes on with another kernel, which gives other bits, and only warns. Here that is noted,
# and the step that it happened in fails.
OTHER_KERNEL = re.compile("mkldnn_.* failed, switching")
_other_kernels: list[str] = []


@functools.cache  # once in a process
def _note_other_kernels() -> None:
    shown = warnings.showwarning

    def noted(message: Warning | str, *where: Any, **further: Any) -> None:
        if OTHER_KERNEL.match(str(message)):
            _other_kernels.append(str(message))
        else:
            shown(message, *where, **further)

    warnings.showwarning = noted


def prepare_process(machine: Machine) -> None:
    torch.set_num_threads(machine.threads)
    if machine.kind == "cuda":
        prepare_gpu(machine.device, deterministic=machine.deterministic, tf32=machine.tf32, compiles=machine.compile)
    elif machine.kind == "cpu":
        keep_pages()
        if limit_of("AS") is not None:
            _note_other_kernels()


def graphs_compiled() -> int:
    """By torch, in this process."""
    compiler = sys.modules.get("torch._dynamo.utils")
    return 0 if compiler is None else int(compiler.counters["stats"]["unique_graphs"])


def keep_pages() -> None:
    """Tell glibc to keep freed pages: faulting in the same hundreds of megabytes every step costs time.

    Blocks above 32 MiB, glibc's limit, still go back: keeping those too cost a tenth more memory at its peak.
    """
    mmap_threshold, trim_threshold = -3, -1  # glibc's M_MMAP_THRESHOLD and M_TRIM_THRESHOLD
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            libc.mallopt(mmap_threshold, 32 * 2**20)
            libc.mallopt(trim_threshold, 2**31 - 1)


def device_named(wanted: str, *, local_rank: int = 0, world_size: int = 1, key: str = "execution.device") -> str:
    """The device meant by auto, cpu, cuda or cuda:N; `key` is what a user gave it by."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
        if wanted == "cpu" and visible_gpus() and _unseen_gpus():
            raise UserError(
                f"{key}: auto, and CUDA_VISIBLE_DEVICES is {os.environ['CUDA_VISIBLE_DEVICES']}, but {_unseen_gpus()}; "
                "install a build of torch for this driver, or use cpu"
            )
    try:
        kind, index = torch.device(wanted).type, torch.device(wanted).index
    except RuntimeError as error:
        raise UserError(f"{key}: {wanted!r} is not a device; use auto, cpu, cuda or cuda:N") from error
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(kind, False):
        raise UserError(f"{key}: {wanted!r} is not available on this machine; use cpu or auto")
    if kind != "cuda":
        return wanted
    if index is not None and world_size > 1:
        raise UserError(f"{key}: {wanted!r} is one GPU for {world_size} processes; use cuda or auto")
    index = local_rank if index is None else index
    if index >= torch.cuda.device_count():
        raise UserError(f"{key}: there is no GPU {index}; this machine has {torch.cuda.device_count()}")
    return f"cuda:{index}"


def _unseen_gpus() -> str | None:
    """Why there is no GPU for torch, where there is one for the driver: an older one than this torch needs, mostly."""
    driver = gpu_driver()
    if driver is None or torch.cuda.is_available():
        return None
    return f"torch {torch.__version__} (CUDA {torch.version.cuda or 'none'}) sees no GPU through driver {driver}"


def _precision(execution: Execution, device: str) -> tuple[str, str]:
    kind = torch.device(device).type
    if execution.precision != "auto":
        return execution.precision, f"precision {execution.precision}: as requested"
    # As torch.cuda.is_bf16_supported, which asks about the current device only: from the generation of A100 on.
    if kind == "cuda" and (torch.version.hip is not None or torch.cuda.get_device_properties(device).major >= 8):
        return "bfloat16", "precision bfloat16: fast on this GPU"
    checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    if kind == "cpu" and any(getattr(torch.cpu, check, lambda: False)() for check in checks):
        return "bfloat16", "precision bfloat16: this CPU multiplies it in hardware"
    return "float32", f"precision float32: this {kind} has no fast bfloat16"


def _compile(execution: Execution, run: ResolvedRun, kind: str, world_size: int) -> tuple[bool, str]:
    if execution.compile == "off":
        return False, "compile off: as requested"
    if isinstance(run.model, Encoder):
        return False, "compile off: the batches of an encoder have too many shapes"
    lacking = lacking_to_compile(kind)
    if execution.compile == "on":
        if lacking:
            raise UserError(f"execution.compile: on, but there is {lacking[0]}; {lacking[1]} or set compile: off")
        return True, "compile on: as requested"
    if lacking:
        return False, f"compile off: {lacking[0]}"
    seconds = training_flops(run) / ASSUMED_FLOPS_PER_SECOND.get(kind, 1e11) / world_size
    if seconds < COMPILE_WORTHWHILE_SECONDS:
        return False, f"compile off: a run of about {max(1, round(seconds))} s is too short to benefit"
    return True, "compile on: the run is long enough to benefit"


# ---- How many sequences at once: the result of a step depends on it in its last bits alone ---------------------------


def micro_batch(run: ResolvedRun, *, kind: str, world_size: int) -> int:
    """As many as are worthwhile; where the memory of a GPU has no room for them, the run starts with fewer (run.py)."""
    most = max(1, TOKENS_AT_ONCE.get(kind, TOKENS_AT_ONCE["cpu"]) // run.model.seq_len)
    share = -(-run.training.batch_size // world_size)
    return min(most, share) if kind != "cuda" else -(-share // -(-share // most))


def micro_batches(mine: range, size: int, kind: str) -> list[range]:
    """This process's part of a step, in pieces of at most `size`. On a GPU they differ by one at most; on a processor
    all but the last have this size.
    """
    if kind != "cuda":
        return [mine[first : first + size] for first in range(0, len(mine), size)]
    parts = -(-len(mine) // size)
    return [mine[number * len(mine) // parts : (number + 1) * len(mine) // parts] for number in range(parts)]


# ---- The same bits every time on a GPU; nothing of this was seen on one ----------------------------------------------


def prepare_gpu(device: str, *, deterministic: bool, tf32: bool, compiles: bool) -> None:
    """Before anything is computed: some of it is read when CUDA starts."""
    if deterministic:
        given = os.environ.setdefault(WORKSPACE, WORKSPACES[0])
        if given not in WORKSPACES:
            raise UserError(
                f"{WORKSPACE}: {given!r} does not give the same bits every time; unset it, set it to {WORKSPACES[0]}, "
                "or set execution.deterministic: false"
            )
    torch.cuda.set_device(device)
    # Without exception: where a warning is all that is asked for, attention's backward pass stays as it is.
    torch.use_deterministic_algorithms(deterministic)
    # Every buffer is written before it is read. A property of the module, of which its types know nothing.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False  # which kernel was fastest just now must not decide
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    # Parts of a product are added in float32, whatever the number of parts.
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    if compiles:
        from torch._inductor import config as compiler  # slow, so only where it is used

        compiler.deterministic = deterministic
        # torch's own launcher keeps Python to itself while it waits for a full queue; then the threads that watch the
        # other processes and listen to signals stand still too. Triton's lets them run.
        compiler.use_static_cuda_launcher = False
        # It recommends TF32 at the start of every run; execution.tf32 is where that is chosen.
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
