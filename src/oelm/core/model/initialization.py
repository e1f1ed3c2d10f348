"""Every starting value is a pure function of a seed and the weight's name.

Nothing is drawn from a shared stream, so arms with one seed differ only in the treatment: another start of
the queries shifts no other weight, and trained and frozen twins start bit-equal.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from oelm.core.accounting import totals
from oelm.core.config import Model, ResolvedModel, Seeds, resolved_model
from oelm.core.model.parameters import layer_of, role_of
from oelm.core.model.transformer import GPT
from oelm.core.options import added_to_a_layer
from oelm.core.parts import BASELINE, ROLES
from oelm.core.seeding import seed_of
from oelm.core.starts import STARTS, Sizes, started
from oelm.machine.errors import UserError
from oelm.machine.system import memory_bytes


def build(model: Model, seeds: Seeds) -> GPT:
    """The model with its starting values."""
    sizes = resolved_model(model)
    needed = totals(sizes).total * torch.get_default_dtype().itemsize
    memory = memory_bytes()
    if memory is not None and needed > memory:
        raise UserError(
            f"model: {needed / 2**30:,.0f} GiB of weights, and this machine has {memory / 2**30:,.0f} GiB of memory; "
            "lower d_model, num_layers or vocabulary"
        )
    gpt = GPT(sizes)
    initialize(gpt, seeds)
    return gpt


@torch.no_grad()
def initialize(gpt: GPT, seeds: Seeds) -> None:
    with one_thread():
        added = {path: each.start for _, path, each in added_to_a_layer(gpt.config)}
        values = {name: _start(gpt.config, seeds, name, tensor, added) for name, tensor in gpt.state_dict().items()}
    gpt.load_state_dict(values)


def _start(model: ResolvedModel, seeds: Seeds, name: str, tensor: Tensor, added: Mapping[str, str]) -> Tensor:
    """What an arm speaks of, and what options add, draws from the projections' seed, everything else from the weights'.

    `added` is how the weights that options add to a block start.
    """
    start = "zeros" if name.endswith(".bias") else added.get(name.split(".", 2)[-1])
    if start == "zeros":
        return torch.zeros(tensor.shape)
    if start is not None:
        draw = normal_draw(seeds.projections, name, tensor.shape)
        return started(start, draw, gain=1.0, heads=model.num_heads, layers=model.num_layers)
    role, layer = role_of(name), layer_of(name)
    part = model.part_at(role, layer)
    is_treated = role in ROLES and (ROLES[role].drawn_apart or part != BASELINE.of(role))
    seed, matrix_free = seeds.projections if is_treated else seeds.weights, STARTS[part.start].matrix_free
    if matrix_free is not None:
        stored = matrix_free.stores[name.rpartition(".")[2]]
        rows, columns = ROLES[role].shape(model)
        return stored.make(
            normal_draw(seed, name, stored.drawn(Sizes(rows, columns, model.num_heads, model.num_layers)))
        )
    draw = normal_draw(seed, _drawn_name(name, role, STARTS[part.start].drawn_as or role), tensor.shape)
    return started(part.start, draw, gain=part.gain, heads=model.num_heads, layers=model.num_layers)


def _drawn_name(name: str, role: str, drawn_as: str) -> str:
    """The weight of the role that a start draws as, in the same layer."""
    if role == drawn_as:
        return name
    (own,), (theirs,) = ROLES[role].in_blocks, ROLES[drawn_as].in_blocks
    return name.replace(own, theirs)


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
