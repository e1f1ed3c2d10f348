"""What makes a GPU give the same bits every time: what is asked of torch, and the form of every operation we use.

Nothing here was seen on a GPU: the forms are what torch documents and its sources say, and torch itself is told to
refuse whatever has none.
"""

from __future__ import annotations

import os
import warnings

import torch

from oelm.errors import UserError

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


# ---- Every operation on our paths ----------------------------------------------------------------------------------

# What a GPU does so that the bits are the same each time -> the operations it holds for, by torch's names: of a step of
# training with all its options, of an encoder's, of validation, and of the exchange between processes.
FORMS: dict[str, tuple[str, ...]] = {
    "every number is written once, by one thread": (
        "_foreach_add_", "_foreach_copy_", "_foreach_div_", "_foreach_mul_", "_foreach_sub_", "_fused_adamw_",
        "_log_softmax_backward_data", "_softmax_backward_data", "_to_copy", "abs", "add", "add_", "arange",
        "bitwise_and", "bitwise_not", "bitwise_or", "cat", "clamp", "clone", "constant_pad_nd", "copy_", "cos", "div",
        "div_", "embedding", "empty", "empty_like", "eq", "exp", "exp_", "fill_", "full", "full_like", "gather", "ge",
        "gelu", "gelu_backward", "index", "index_select", "isfinite", "le", "lift_fresh", "log", "lt", "masked_fill",
        "maximum", "mul", "mul_", "ne", "neg", "new_empty", "new_full", "new_ones", "new_zeros", "ones", "ones_like",
        "pow", "reciprocal", "relu", "rsqrt", "rsub", "scalar_tensor", "searchsorted", "select_backward", "sin",
        "slice_backward", "stack", "sub", "sub_", "tanh", "tanh_backward", "threshold_backward", "tril", "where",
        "zero_", "zeros", "zeros_like",
    ),
    "a view, or nothing but names": (
        "_record_function_enter_new", "_record_function_exit", "_reshape_alias", "_unsafe_view", "alias",
        "as_strided", "detach", "device", "diagonal", "expand", "permute", "promote_types", "select", "slice",
        "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unsqueeze", "view",
    ),
    "products by cuBLAS with a fixed workspace; parts of a bfloat16 product are added in float32": (
        "addmm", "addmm_", "baddbmm", "bmm", "mm",
    ),
    "sums in an order that the shape decides, without atomic additions": (
        "_foreach_norm", "_log_softmax", "_safe_softmax", "_softmax", "all", "amax", "any", "argmax",
        "linalg_vector_norm", "max", "mean", "native_layer_norm", "native_layer_norm_backward", "sum",
    ),
    "forward in a fixed order; backward flash attention takes its deterministic form, memory-efficient "
    "attention does not split the keys, and cuDNN's is not chosen": (
        "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward",
        "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward",
        "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward",
    ),
    "indices are sorted, then each row is added up by one thread": (
        "embedding_dense_backward", "index_add", "index_add_", "index_put", "index_put_", "sort",
    ),
    "one target a row: nothing is added twice": (
        "nll_loss_backward", "nll_loss_forward",
    ),
    "random numbers are a function of a seed and a position": (
        "bernoulli_", "native_dropout", "native_dropout_backward", "normal_", "randn", "uniform_",
    ),
    "whole numbers, whose sum has no order": (
        "cumsum",
    ),
    "a number is read by the host": (
        "_local_scalar_dense",
    ),
    "NCCL adds in an order that the size of a message and the connections decide": (
        "allreduce_", "broadcast_",
    ),
}  # fmt: skip


def forms_table() -> list[str]:
    """As docs/gpu.md has it."""
    rows = [f"| {', '.join(f'`{each}`' for each in operations)} | {form} |" for form, operations in FORMS.items()]
    return ["| operations | why the bits are the same |", "|---|---|", *rows]
