"""What a model's parameters are for, how many there are, and whether they are still what they were."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from oelm.core.moves import Always, Moves, Never
from oelm.core.options import ADDITIONS, addition_of
from oelm.core.parts import ALL_ROLES
from oelm.machine.errors import UserError


@dataclass(frozen=True)
class Rule:
    """When one parameter moves, and in which layer it stands."""

    moves: Moves
    layer: int | None


def mark(module: nn.Module, moves: Moves) -> None:
    """Say when the parameters of this module itself move; what never does requires no gradient."""
    marked: Any = module
    marked.oelm_moves = {name: moves for name, _ in module.named_parameters(recurse=False)}
    module.requires_grad_(not isinstance(moves, Never))


STACKS = ("blocks", "layer", "layers", "h")  # what the list of layers is called, in our models and in others'


def rules(model: nn.Module) -> dict[str, Rule]:
    """The rule of every parameter, by its name: as its module's `oelm_moves` says, else it always moves."""
    modules = dict(model.named_modules())
    found: dict[str, Rule] = {}
    for name, _ in model.named_parameters():
        path, _, leaf = name.rpartition(".")
        moves = getattr(modules[path], "oelm_moves", {}).get(leaf, Always())
        found[name] = Rule(moves=moves, layer=layer_of(name))
    return found


def layer_of(name: str) -> int | None:
    """The number after the name of the list of layers."""
    parts = name.split(".")
    numbers = (int(after) for part, after in pairwise(parts) if part in STACKS and after.isdigit())
    return next(numbers, None)


def stored_name(name: str) -> str:
    """The name under which a state dict holds this parameter, which may be a part of a joined one."""
    joined = re.sub(r"\b(covered|free)$", "weight", name)
    return re.sub(r"\b(weight|bias)_\d+$", r"\1", joined)


def role_of(name: str) -> str:
    """The same words as accounting.PartCount.role."""
    addition = addition_of(name)
    return _ROLE_OF_MODULE[name.split(".")[-2]] if addition is None else addition.role


_ROLE_OF_MODULE = {
    path.rpartition(".")[2]: role.name for role in ALL_ROLES.values() for path in (*role.in_blocks, *role.outside)
}


def decays(name: str, role: str) -> bool:
    """Whether a parameter of this name and role has weight decay: matrices have it, norms and biases do not."""
    if role in ADDITIONS:
        return ADDITIONS[role].decays
    return not stored_name(name).endswith("bias") and (role not in ALL_ROLES or ALL_ROLES[role].decays)


def encoder_role_of(name: str) -> str:
    """The same words for the parameters of BERT, RoBERTa and DistilBERT with a classification head."""
    return next(role for pattern, role in _ENCODER_ROLES if pattern.search(name))


_ENCODER_ROLES = tuple(
    (re.compile(pattern), role)
    for pattern, role in (
        (r"(?i)layer_?norm", "norm"),
        (r"word_embeddings", "token_embedding"),
        (r"position_embeddings", "position_embedding"),
        (r"token_type_embeddings", "type_embedding"),
        (r"(query|q_lin)\.", "query"),
        (r"(key|k_lin)\.", "key"),
        (r"(value|v_lin)\.", "value"),
        (r"attention\.(output\.dense|out_lin)\.", "output"),
        (r"(intermediate\.dense|ffn\.lin1)\.", "up"),
        (r"layer\.\d+\.(output\.dense|ffn\.lin2)\.", "down"),
        (r"", "head"),
    )
)


class Count(NamedTuple):
    """Numbers that are stored, those of them that never move, and entries of matrices that are stored nowhere."""

    total: int
    frozen: int
    implied: int


def counts_by_part(model: nn.Module, role: Callable[[str], str] = role_of) -> dict[tuple[str, int | None], Count]:
    """By role and layer, counted on the model itself."""
    counts: dict[tuple[str, int | None], Count] = {}

    def add(key: tuple[str, int | None], *numbers: int) -> None:
        counts[key] = Count(*map(sum, zip(counts.get(key, (0, 0, 0)), numbers, strict=True)))

    for (name, rule), parameter in zip(rules(model).items(), model.parameters(), strict=True):
        never = isinstance(rule.moves, Never)
        add((role(name), rule.layer), parameter.numel(), parameter.numel() if never else 0, 0)
    for path, entries in implied_entries(model).items():
        name = f"{path}.weight"  # as it would be called
        add((role(name), layer_of(name)), 0, 0, entries)
    return counts


def implied_entries(model: nn.Module) -> dict[str, int]:
    """Modules that stand for a matrix which nobody stores, with its entries."""
    found = ((path, getattr(module, "implied", 0)) for path, module in model.named_modules())
    return {path: entries for path, entries in found if isinstance(entries, int) and entries}


def summed(counts: dict[tuple[str, int | None], Count]) -> Count:
    """Of the whole model."""
    return Count(*map(sum, zip(*counts.values(), strict=True)))


# ---- Digests -------------------------------------------------------------------------------------------------------


def tensor_digest(tensor: Tensor) -> str:
    """SHA-256 of type, shape and bytes."""
    plain = tensor.detach().cpu().contiguous()
    header = f"{plain.dtype}{tuple(plain.shape)}".encode()
    return hashlib.sha256(header + plain.reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


def parameter_digests(gpt: nn.Module, names: Iterable[str]) -> dict[str, str]:
    parameters = dict(gpt.named_parameters())
    return {name: tensor_digest(parameters[name]) for name in names}


def combined_digest(digests: dict[str, str]) -> str:
    return hashlib.sha256("".join(f"{name}={digests[name]};" for name in sorted(digests)).encode()).hexdigest()


def weights_digest(weights: dict[str, Tensor]) -> str:
    return combined_digest({name: tensor_digest(value) for name, value in weights.items()})


def check_weights_file(path: Path) -> None:
    """A weights file of ours carries its digest; one that somebody saved anew has none, and is taken as it is."""
    with safe_open(path, "pt") as file:
        digest = (file.metadata() or {}).get("digest")
    if digest is not None and digest != weights_digest(load_file(path)):
        raise UserError(f"{path}: damaged: its weights do not match their digest; use a checkpoint, or export again")


def frozen_names(gpt: nn.Module) -> list[str]:
    """Parameters that never move."""
    return [name for name, rule in rules(gpt).items() if isinstance(rule.moves, Never)]
