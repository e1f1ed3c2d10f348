"""Where each family of models keeps its queries and keys, as a table. A new family is a new row.

Nothing here imports transformers: models are recognised by their config's `model_type` and the names of their modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn

from oelm.errors import UserError


@dataclass(frozen=True)
class Family:
    """`projections`: modules inside an attention module, each with what it computes, in the order of its outputs."""

    name: str
    model_types: tuple[str, ...]
    stack: str  # the list of layers
    attention: str  # the attention module within a layer
    projections: tuple[tuple[str, tuple[str, ...]], ...]
    outputs_last: bool = False  # weights are in x out, as GPT-2's Conv1D has them
    key_heads: str = "num_attention_heads"  # where the config says so; fewer than heads where keys are grouped


_SEPARATE = (("q_proj", ("query",)), ("k_proj", ("key",)))

FAMILIES = (
    Family(
        name="BERT",
        model_types=("bert", "roberta", "xlm-roberta", "camembert", "electra"),
        stack="layer",
        attention="attention.self",
        projections=(("query", ("query",)), ("key", ("key",))),
    ),
    Family(
        name="DistilBERT",
        model_types=("distilbert",),
        stack="layer",
        attention="attention",
        projections=(("q_lin", ("query",)), ("k_lin", ("key",))),
    ),
    Family(
        name="ViT",
        model_types=("vit",),
        stack="layers",
        attention="attention",
        projections=_SEPARATE,
    ),
    Family(
        name="GPT-2",
        model_types=("gpt2",),
        stack="h",
        attention="attn",
        projections=(("c_attn", ("query", "key", "value")),),
        outputs_last=True,
    ),
    Family(
        name="Llama",
        model_types=("llama", "mistral", "qwen2", "qwen3"),
        stack="layers",
        attention="self_attn",
        projections=_SEPARATE,
        key_heads="num_key_value_heads",
    ),
)


@dataclass(frozen=True)
class Site:
    """One module that computes queries, keys, or both and more."""

    path: str  # in this model
    name: str  # from the list of layers on: the same whatever head or wrapper the model has
    layer: int
    roles: tuple[str, ...]  # equal parts of its outputs


def family_of(model: nn.Module) -> Family:
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    if not isinstance(model, nn.Module) or model_type is None:
        raise UserError(f"model: {type(model).__name__} is not a model of the transformers library")
    for family in FAMILIES:
        if model_type in family.model_types and sites_of(model, family):
            return family
    known = ", ".join(kind for family in FAMILIES for kind in family.model_types)
    raise UserError(
        f"model: {type(model).__name__} (model_type {model_type}) is not supported; its attention-like modules: "
        f"{'; '.join(attention_looking(model)) or 'none'} (known model types: {known})"
    )


def sites_of(model: nn.Module, family: Family) -> list[Site]:
    """Every module of the model that computes queries or keys, layer by layer."""
    return list(_sites(model, family))


def _sites(model: nn.Module, family: Family) -> Iterator[Site]:
    where = re.compile(rf"(?:.*\.)?({family.stack}\.(\d+)\.{re.escape(family.attention)})\.(\w+)")
    roles = dict(family.projections)
    for path, _ in model.named_modules():
        found = where.fullmatch(path)
        if found and found[3] in roles:
            yield Site(path=path, name=f"{found[1]}.{found[3]}", layer=int(found[2]), roles=roles[found[3]])


# ---- For a refusal -------------------------------------------------------------------------------------------------

SHOWN = 6
_PROJECTING = re.compile(r"q|k|qkv|Wqkv|query|key|query_key_value|[qk]_proj|[qk]_lin|qkv_proj|c_attn|in_proj")


def attention_looking(model: nn.Module) -> list[str]:
    """Modules with attention in the name of their class or with children named like projections, layers once."""
    found: dict[str, str] = {}
    for path, module in model.named_modules():
        children = [name for name, _ in module.named_children()]
        projecting = [name for name in children if _PROJECTING.fullmatch(name)]
        if projecting or (path and "attention" in type(module).__name__.lower()):
            where = re.sub(r"\b\d+\b", "N", path) or "the model itself"
            found[where] = f"{where} ({type(module).__name__}: {', '.join(children) or 'no children'})"
    lines = list(found.values())
    return [*lines[:SHOWN], *([f"{len(lines) - SHOWN} more"] if len(lines) > SHOWN else [])]
