"""Every starting value is a pure function of a seed and the weight's name.

Nothing is drawn from a shared stream, so arms with one seed differ only in the treatment: another start of
the queries shifts no other weight, and trained and frozen twins start bit-equal.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from oelm.config import Model, ResolvedModel, Seeds, resolved_model
from oelm.errors import UserError
from oelm.model.transformer import GPT
from oelm.seeding import seed_of
from oelm.starts import WEIGHT_STANDARD_DEVIATION, started
from oelm.system import memory_bytes


def build(model: Model, seeds: Seeds) -> GPT:
    """The model with its starting values."""
    sizes = resolved_model(model)
    _refuse_what_no_memory_holds(sizes)
    gpt = GPT(sizes)
    initialize(gpt, seeds)
    return gpt


def _refuse_what_no_memory_holds(model: ResolvedModel) -> None:
    width = model.d_model
    matrices = model.vocabulary * width + model.num_layers * (4 * width * width + 2 * width * model.d_ff)
    needed = matrices * torch.get_default_dtype().itemsize
    memory = memory_bytes()
    if memory is not None and needed > memory:
        raise UserError(
            f"model: {needed / 2**30:,.0f} GiB of weights, and this machine has {memory / 2**30:,.0f} GiB of memory; "
            "lower d_model, num_layers or vocabulary"
        )


@torch.no_grad()
def initialize(gpt: GPT, seeds: Seeds) -> None:
    with one_thread():
        values = {name: _start(gpt.config, seeds, name, tensor) for name, tensor in gpt.state_dict().items()}
    gpt.load_state_dict(values)


def _start(model: Model, seeds: Seeds, name: str, tensor: Tensor) -> Tensor:
    *_, module, leaf = name.split(".")
    if leaf == "bias":
        return torch.zeros(tensor.shape)
    if module.endswith("norm"):
        return torch.ones(tensor.shape)
    if ".attention." in name:
        seed = seeds.projections if module in ("query", "key") else seeds.weights
        spec = getattr(model.attention, module)
        draw = normal_draw(seed, name, tensor.shape)
        return started(spec.start, draw, gain=spec.gain, heads=model.num_heads, layers=model.num_layers)
    deviation = WEIGHT_STANDARD_DEVIATION
    if module == "down":
        deviation /= math.sqrt(2 * model.num_layers)
    return normal_draw(seeds.weights, name, tensor.shape) * deviation


def normal_draw(seed: int, name: str, shape: Sequence[int]) -> Tensor:
    generator = torch.Generator().manual_seed(seed_of(seed, name))
    return torch.randn(shape, generator=generator, dtype=torch.float32)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """QR's last bits depend on the number of threads; a start must not."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
