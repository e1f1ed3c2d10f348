"""What makes a GPU give the same bits every time, and refuse what does not: what is asked of torch.

Nothing here was seen on a GPU.
"""

from __future__ import annotations

import os
import warnings

import torch

from oelm.machine.errors import UserError

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")  # with which cuBLAS promises equal bits; the first is the faster one
NOT_DETERMINISTIC = "deterministic off: as requested; a resumed run may differ from an uninterrupted one"


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
