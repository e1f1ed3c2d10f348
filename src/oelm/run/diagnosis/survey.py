"""Every parameter and buffer of a module: what it is, whether it should move, and who could move it.

A weight need not be a parameter: a buffer with the looks of a weight is counted as frozen, which `parameters()` is not
able to tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from oelm.core.accounting import Totals
from oelm.core.model.parameters import role_of, rules
from oelm.core.model.projection import Projection
from oelm.core.model.transformer import GPT
from oelm.core.moves import Always, Moves, Never

Expected = Literal["always", "never", "by schedule"]
MASKED = 1e4  # what a mask adds where nothing may be seen is beyond this


@dataclass(frozen=True)
class Surveyed:
    """One parameter or buffer. What steps have shown is None where none were taken."""

    name: str
    kind: Literal["parameter", "buffer"]
    role: str
    shape: tuple[int, ...]
    dtype: str
    item_bytes: int
    requires_grad: bool
    is_weight: bool
    should_move: Expected | None  # None: a buffer that is no weight, such as a running mean
    in_optimizer: bool | None
    weight_decay: float
    should_move_at: tuple[int, ...] | None = None
    moved_at: tuple[int, ...] | None = None
    had_gradient: bool | None = None

    @property
    def elements(self) -> int:
        return torch.Size(self.shape).numel()

    @property
    def bytes(self) -> int:
        return self.elements * self.item_bytes


def survey(
    module: nn.Module, *, expected: Callable[[str], Expected], optimizer: torch.optim.Optimizer | None
) -> tuple[Surveyed, ...]:
    """All parameters (tied ones once), then all buffers."""
    groups = [] if optimizer is None else optimizer.param_groups
    decay = {id(p): float(g.get("weight_decay", 0)) for g in groups for p in g["params"]}
    stored = module.state_dict().keys()

    def entry(name: str, tensor: Tensor, *, should_move: Expected | None, held: bool | None) -> Surveyed:
        # The innermost module that has a word for a name: `query` of encoder.layer.0.attention.self.query.weight.
        words = [part for part in name.split(".")[:-1] if not part.isdigit()] or ["other"]
        return Surveyed(
            name=name,
            kind="parameter" if isinstance(tensor, nn.Parameter) else "buffer",
            role=role_of(name) if isinstance(module, GPT) else words[-1],
            shape=tuple(tensor.shape),
            dtype=str(tensor.dtype).removeprefix("torch."),
            item_bytes=tensor.element_size(),
            requires_grad=tensor.requires_grad,
            is_weight=should_move is not None,
            should_move=should_move,
            in_optimizer=None if optimizer is None else held,
            weight_decay=decay.get(id(tensor), 0.0),
        )

    found = [
        entry(name, tensor, should_move=expected(name), held=id(tensor) in decay)
        for name, tensor in module.named_parameters()
    ]
    for name, buffer in module.named_buffers():
        should_move = expected(name) if name in stored and looks_like_a_weight(buffer) else None
        found.append(entry(name, buffer, should_move=should_move, held=False))
    return tuple(found)


def looks_like_a_weight(buffer: Tensor) -> bool:
    """Floating point, at least a matrix, and not a mask (nothing but 0, 1 and very large values)."""
    if not buffer.is_floating_point() or sum(size > 1 for size in buffer.shape) < 2:
        return False
    if buffer.is_meta:
        return True
    plain = buffer.detach()
    is_constant = bool((plain == plain.flatten()[0]).all())
    return is_constant or not bool(((plain == 0) | (plain == 1) | (plain.abs() > MASKED)).all())


# ---- What should move ----------------------------------------------------------------------------------------------


def expected_of(moves: Moves) -> Expected:
    match moves:
        case Always():
            return "always"
        case Never():
            return "never"
    return "by schedule"


def expected_of_module(module: nn.Module, should_move: Callable[[str], bool] | None) -> Callable[[str], Expected]:
    """As `should_move` says; else as our projections or an applied arm say; else what requires a gradient moves."""
    modules, parameters = dict(module.named_modules()), dict(module.named_parameters())

    def expected(name: str) -> Expected:
        if should_move is not None:
            return "always" if should_move(name) else "never"
        path, _, leaf = name.rpartition(".")
        owner = modules[path]
        moves = getattr(owner, "oelm_moves", {}).get(leaf, Always())
        if isinstance(owner, Projection) or not isinstance(moves, Always):
            return expected_of(moves)
        return "always" if name in parameters and parameters[name].requires_grad else "never"

    return expected


# ---- Counting ------------------------------------------------------------------------------------------------------


def counted(entries: tuple[Surveyed, ...], *, implied: int = 0) -> Totals:
    """Weights in the module, wherever they are; trainable is what requires a gradient. What is implied is none."""
    total = sum(entry.elements for entry in entries if entry.is_weight)
    trainable = sum(entry.elements for entry in entries if entry.is_weight and entry.requires_grad)
    return Totals(total=total, trainable=trainable, frozen=total - trainable, implied=implied)


# ---- Notes ---------------------------------------------------------------------------------------------------------


def survey_notes(module: nn.Module, entries: tuple[Surveyed, ...]) -> list[str]:
    notes = []
    hidden = [entry for entry in entries if entry.kind == "buffer" and entry.is_weight]
    if hidden:  # the puzzle of a frozen model whose report says: nothing frozen
        seen = sum(entry.elements for entry in entries if entry.kind == "parameter")
        unseen = sum(entry.elements for entry in hidden)
        buffers = "buffer that looks like a weight" if len(hidden) == 1 else "buffers that look like weights"
        notes.append(
            f"parameters() alone counts {seen:,}; {unseen:,} more elements are in {len(hidden)} {buffers} "
            f"({enumerated([entry.name for entry in hidden])}), invisible to a counter that reads parameters() only. "
            "They are frozen: no gradient reaches them and no optimizer contains them. The true total is "
            f'{seen + unseen:,}, of which at least {unseen:,} are frozen: a report of "{seen:,} total, 0 frozen" is an '
            "error of counting, not a missing freeze."
        )
    if names := unsaved_tensors(module):
        notes.append(
            f"NOT SAVED: {enumerated(names)}. They are in no state_dict and in none of the counts above. That is "
            "harmless for tables that are computed anew. Frozen weights that were drawn are lost with the process: a "
            "model built again and loaded has others. Keep such weights as parameters without a gradient, or as "
            "persistent buffers."
        )
    if isinstance(module, GPT) and module.config.tied:
        frozen = isinstance(rules(module)["token_embedding.weight"].moves, Never)
        with_it = ", and frozen with it" if frozen else ""
        return [*notes, f"the output layer is the token embedding: counted once{with_it}"]
    shared: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        shared.setdefault(id(parameter), []).append(name)
    return notes + [f"{' = '.join(tied)}: tied, counted once" for tied in shared.values() if len(tied) > 1]


def unsaved_tensors(module: nn.Module) -> list[str]:
    """What looks like a weight and is in no saved file: buffers that are not persistent, and tensors that are neither
    parameters nor buffers but plain attributes.
    """
    stored = module.state_dict().keys()
    buffers = [(name, tensor) for name, tensor in module.named_buffers() if name not in stored]
    attributes = [
        (f"{path}.{name}".lstrip("."), value)
        for path, owner in module.named_modules()
        for name, value in vars(owner).items()
        if isinstance(value, Tensor)
    ]
    return [name for name, tensor in (*buffers, *attributes) if looks_like_a_weight(tensor)]


def enumerated(names: list[str], *, shown: int = 4) -> str:
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + rest
