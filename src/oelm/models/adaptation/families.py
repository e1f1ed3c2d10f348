"""Where each family of models keeps its parts, as a table: one row a family, with the paths of every role.

Nothing here imports transformers: models are recognised by their config's `model_type` and the names of their modules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from oelm.core.parts import ROLES
from oelm.machine.errors import UserError

Paths = Mapping[str, tuple[str, ...]]  # by role


@dataclass(frozen=True)
class Family:
    """A path leads to a module or to a bare parameter; what a model of the family lacks is passed over.

    A path with several roles is a fused module: its outputs are theirs, in the order of core/parts.py.
    """

    name: str
    model_types: tuple[str, ...]
    stack: str  # the list of layers
    in_layers: Paths  # within a layer
    outside: Paths  # the end of the name of what is in no layer
    outputs_last: bool = False  # weights are in x out, as GPT-2's Conv1D has them
    key_heads: Callable[[Any], int] = lambda config: int(config.num_attention_heads)  # fewer where keys are grouped
    by_key_head: bool = False  # fused outputs come by key head: its queries, its key, its value, then the next one's


def _grouped(config: Any) -> int:
    return int(config.num_key_value_heads)


def _falcon_key_heads(config: Any) -> int:
    """Of its three layouts: grouped, one key for all heads, and a key for each."""
    if config.new_decoder_architecture:
        return int(config.num_kv_heads)
    return 1 if config.multi_query else int(config.num_attention_heads)


_SEPARATE = {"query": ("q_proj",), "key": ("k_proj",), "value": ("v_proj",), "output": ("o_proj",)}


def _within(module: str, paths: Paths) -> dict[str, tuple[str, ...]]:
    return {role: tuple(f"{module}.{path}" for path in found) for role, found in paths.items()}


def _fused(path: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(("query", "key", "value"), (path,))


_GATED = {"up": ("mlp.gate_proj", "mlp.up_proj"), "down": ("mlp.down_proj",)}
_PLAIN = {"up": ("mlp.fc1",), "down": ("mlp.fc2",)}
_BLOOM_LIKE = {"up": ("mlp.dense_h_to_4h",), "down": ("mlp.dense_4h_to_h",)}
_BERT_LIKE = {
    "output": ("attention.output.dense",),
    "up": ("intermediate.dense",),
    "down": ("output.dense",),
    "norm": ("attention.output.LayerNorm", "output.LayerNorm"),
}
_NORMS_OF_TWO = ("input_layernorm", "post_attention_layernorm")
_EMBEDDINGS = {
    "token_embedding": ("embeddings.word_embeddings",),
    "position_embedding": ("embeddings.position_embeddings",),
}

FAMILIES = (
    Family(
        name="BERT",
        model_types=("bert", "roberta", "xlm-roberta", "camembert", "electra"),
        stack="layer",
        in_layers={
            "query": ("attention.self.query",),
            "key": ("attention.self.key",),
            "value": ("attention.self.value",),
        }
        | _BERT_LIKE,
        outside=_EMBEDDINGS | {"norm": ("embeddings.LayerNorm",)},
    ),
    Family(
        name="DeBERTa",
        model_types=("deberta-v2",),
        stack="layer",
        in_layers={
            "query": ("attention.self.query_proj", "attention.self.pos_query_proj"),
            "key": ("attention.self.key_proj", "attention.self.pos_key_proj"),
            "value": ("attention.self.value_proj",),
        }
        | _BERT_LIKE,
        outside={
            "token_embedding": ("embeddings.word_embeddings",),
            "position_embedding": ("embeddings.position_embeddings", "encoder.rel_embeddings"),
            "norm": ("embeddings.LayerNorm", "encoder.LayerNorm", "encoder.conv.LayerNorm"),
        },
    ),
    Family(
        name="DistilBERT",
        model_types=("distilbert",),
        stack="layer",
        in_layers={
            "query": ("attention.q_lin",),
            "key": ("attention.k_lin",),
            "value": ("attention.v_lin",),
            "output": ("attention.out_lin",),
            "up": ("ffn.lin1",),
            "down": ("ffn.lin2",),
            "norm": ("sa_layer_norm", "output_layer_norm"),
        },
        outside=_EMBEDDINGS | {"norm": ("embeddings.LayerNorm",)},
    ),
    Family(
        name="ModernBERT",
        model_types=("modernbert",),
        stack="layers",
        in_layers=_fused("attn.Wqkv")
        | {"output": ("attn.Wo",), "up": ("mlp.Wi",), "down": ("mlp.Wo",), "norm": ("attn_norm", "mlp_norm")},
        outside={"token_embedding": ("embeddings.tok_embeddings",), "norm": ("embeddings.norm", "final_norm")},
    ),
    Family(
        name="ViT",
        model_types=("vit", "deit"),
        stack="layers",
        in_layers=_within("attention", _SEPARATE) | _PLAIN | {"norm": ("layernorm_before", "layernorm_after")},
        outside={"position_embedding": ("embeddings.position_embeddings",), "norm": ("layernorm",)},
    ),
    Family(
        name="DINOv2",
        model_types=("dinov2",),
        stack="layer",
        in_layers=_within("attention", _SEPARATE)
        | {role: _PLAIN[role] + _GATED[role] for role in ("up", "down")}
        | {"norm": ("norm1", "norm2")},
        outside={"position_embedding": ("embeddings.position_embeddings",), "norm": ("layernorm",)},
    ),
    Family(
        name="GPT-2",
        model_types=("gpt2",),
        stack="h",
        in_layers=_fused("attn.c_attn")
        | {"output": ("attn.c_proj",), "up": ("mlp.c_fc",), "down": ("mlp.c_proj",), "norm": ("ln_1", "ln_2")},
        outside={"token_embedding": ("wte",), "position_embedding": ("wpe",), "norm": ("ln_f",)},
        outputs_last=True,
    ),
    Family(
        name="Llama",
        model_types=("llama", "mistral", "qwen2", "qwen3", "olmo2", "smollm3", "gemma", "gemma2", "gemma3_text"),
        stack="layers",
        in_layers=_within("self_attn", _SEPARATE)
        | _GATED
        | {
            "norm": (
                *_NORMS_OF_TWO,
                "pre_feedforward_layernorm",
                "post_feedforward_layernorm",
                "self_attn.q_norm",
                "self_attn.k_norm",
            )
        },
        outside={"token_embedding": ("embed_tokens",), "norm": ("norm",)},
        key_heads=_grouped,
    ),
    Family(
        name="Mixtral",
        model_types=("mixtral",),
        stack="layers",
        in_layers=_within("self_attn", _SEPARATE)
        | {"up": ("mlp.experts.gate_up_proj",), "down": ("mlp.experts.down_proj",), "norm": _NORMS_OF_TWO},
        outside={"token_embedding": ("embed_tokens",), "norm": ("norm",)},
        key_heads=_grouped,
    ),
    Family(
        name="Phi",
        model_types=("phi",),
        stack="layers",
        in_layers=_within("self_attn", _SEPARATE | {"output": ("dense",)})
        | _PLAIN
        | {"norm": ("input_layernorm", "self_attn.q_layernorm", "self_attn.k_layernorm")},
        outside={"token_embedding": ("embed_tokens",), "norm": ("final_layernorm",)},
        key_heads=_grouped,
    ),
    Family(
        name="Phi-3",
        model_types=("phi3",),
        stack="layers",
        in_layers=_fused("self_attn.qkv_proj")
        | {
            "output": ("self_attn.o_proj",),
            "up": ("mlp.gate_up_proj",),
            "down": ("mlp.down_proj",),
            "norm": _NORMS_OF_TWO,
        },
        outside={"token_embedding": ("embed_tokens",), "norm": ("norm",)},
        key_heads=_grouped,
    ),
    Family(
        name="OPT",
        model_types=("opt",),
        stack="layers",
        in_layers=_within("self_attn", _SEPARATE | {"output": ("out_proj",)})
        | {"up": ("fc1",), "down": ("fc2",), "norm": ("self_attn_layer_norm", "final_layer_norm")},
        outside={
            "token_embedding": ("embed_tokens",),
            "position_embedding": ("embed_positions",),
            "norm": ("final_layer_norm",),
        },
    ),
    Family(
        name="GPT-NeoX",
        model_types=("gpt_neox",),
        stack="layers",
        in_layers=_fused("attention.query_key_value")
        | {"output": ("attention.dense",), "norm": _NORMS_OF_TWO}
        | _BLOOM_LIKE,
        outside={"token_embedding": ("embed_in",), "norm": ("final_layer_norm",)},
        by_key_head=True,
    ),
    Family(
        name="BLOOM",
        model_types=("bloom",),
        stack="h",
        in_layers=_fused("self_attention.query_key_value")
        | {"output": ("self_attention.dense",), "norm": _NORMS_OF_TWO}
        | _BLOOM_LIKE,
        outside={"token_embedding": ("word_embeddings",), "norm": ("word_embeddings_layernorm", "ln_f")},
        by_key_head=True,
    ),
    Family(
        name="Falcon",
        model_types=("falcon",),
        stack="h",
        in_layers=_fused("self_attention.query_key_value")
        | {"output": ("self_attention.dense",), "norm": (*_NORMS_OF_TWO, "ln_attn", "ln_mlp")}
        | _BLOOM_LIKE,
        outside={"token_embedding": ("word_embeddings",), "norm": ("ln_f",)},
        key_heads=_falcon_key_heads,
        by_key_head=True,
    ),
)


@dataclass(frozen=True)
class Site:
    """A module, or a bare parameter, that is a part of a model, or several fused ones."""

    path: str  # in this model
    name: str  # from the list of layers on, or the family's path: the same whatever head or wrapper the model has
    layer: int | None  # None: in no layer
    roles: tuple[str, ...]

    def held(self, model: nn.Module) -> tuple[nn.Module | None, dict[str, Tensor]]:
        """The module (None: a bare parameter) and its own parameters by their last names."""
        holder, _, leaf = self.path.rpartition(".")
        found = getattr(model.get_submodule(holder), leaf)
        if isinstance(found, nn.Module):
            return found, dict(found.named_parameters(recurse=False))
        return None, {leaf: found}


def family_of(model: nn.Module) -> Family:
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    if not isinstance(model, nn.Module) or model_type is None:
        raise UserError(f"model: {type(model).__name__} is not a model of the transformers library")
    for family in FAMILIES:
        if model_type in family.model_types and any("query" in site.roles for site in sites_of(model, family)):
            return family
    known = ", ".join(kind for family in FAMILIES for kind in family.model_types)
    raise UserError(
        f"model: {type(model).__name__} (model_type {model_type}) is not supported; its attention-like modules: "
        f"{'; '.join(attention_looking(model)) or 'none'} (known model types: {known})"
    )


def sites_of(model: nn.Module, family: Family) -> list[Site]:
    """Every part of the model that the family knows, as the model orders its modules: modules that have parameters of
    their own, and bare parameters."""
    sites = []
    for path, module in model.named_modules():
        leaves = [leaf for leaf, _ in module.named_parameters(recurse=False)]
        # PEFT's wrappers have theirs inside; split modules and wrappers are still what they were before.
        found = [path] if leaves or hasattr(module, "base_layer") else []
        for each in found + [f"{path}.{leaf}".lstrip(".") for leaf in leaves]:
            site = _site_at(each, family)
            if site is not None:
                sites.append(site)
    return sites


def _site_at(path: str, family: Family) -> Site | None:
    found = re.fullmatch(rf"(?:.*?\.)??({family.stack}\.(\d+)\.(.+))", path)
    if found:
        roles = tuple(role for role in ROLES if found[3] in family.in_layers.get(role, ()))
        return Site(path=path, name=found[1], layer=int(found[2]), roles=roles) if roles else None
    for role, ends in family.outside.items():
        for end in ends:
            if path == end or path.endswith(f".{end}"):
                return Site(path=path, name=end, layer=None, roles=(role,))
    return None


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


# ---- For digests ---------------------------------------------------------------------------------------------------


def name_in_family(name: str, family: Family) -> str | None:
    """A parameter's name whatever head or wrapper the model has; None where the family does not know it."""
    plain = name.replace(".base_layer.", ".")
    for path, ending in ((plain, ""), (plain.rpartition(".")[0], "." + plain.rpartition(".")[2])):
        site = _site_at(path, family)
        if site is not None:
            return site.name + ending
    return None
