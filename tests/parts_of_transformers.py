"""Which weights of the tiny models of the library are whose, written down apart from the table under test.

A name decides the role; the outputs of fused modules are taken apart by the same views as the library's forward passes.
"""

from __future__ import annotations

import re

from torch import Tensor, nn

HEADS, KEY_HEADS = 4, 2
IN_A_LAYER = r"\b(?:layers?|h)\.\d+\."
NAMES = {
    "norm": r"(?i)^(?!head\.).*(?:norm\d?|layernorm_\w+|ln_\w+)\.(?:weight|bias)$",
    "token_embedding": r"(?:word_embeddings|embed_tokens|wte|embed_in|tok_embeddings)\.weight$",
    "position_embedding": r"(?:position_embeddings|(?:position_embeddings|wpe|embed_positions|rel_\w+)\.weight)$",
    "query": IN_A_LAYER + r".*\b(?:query|q_proj|q_lin|query_proj|pos_query_proj)\.\w+$",
    "key": IN_A_LAYER + r".*\b(?:key|k_proj|k_lin|key_proj|pos_key_proj)\.\w+$",
    "value": IN_A_LAYER + r".*\b(?:value|v_proj|v_lin|value_proj)\.\w+$",
    "output": IN_A_LAYER
    + r"(?:attention\.output\.dense|(?:self_)?att\w*\.(?:out_lin|o_proj|out_proj|c_proj|dense|Wo))\.\w+$",
    "up": IN_A_LAYER + r"(?:(?:intermediate\.dense|ffn\.lin1|(?:mlp\.)?fc1)\.\w+"
    r"|mlp\.(?:c_fc|gate_proj|up_proj|gate_up_proj|dense_h_to_4h|Wi)\.\w+|mlp\.experts\.gate_up_proj)$",
    "down": IN_A_LAYER + r"(?:(?:output\.dense|ffn\.lin2|(?:mlp\.)?fc2|mlp\.(?:c_proj|down_proj|dense_4h_to_h|Wo))\.\w+"
    r"|mlp\.experts\.down_proj)$",
}
FUSED = re.compile(r"(?:c_attn|qkv_proj|query_key_value|Wqkv)\.(?:weight|bias)$")


def by_role(model: nn.Module, name: str, value: Tensor) -> dict[str, Tensor]:
    """What of a stored parameter is whose, outputs first; nothing where no role knows it."""
    if FUSED.search(name):
        kind = model.config.model_type
        return _taken_apart(model, value.T if kind == "gpt2" and value.dim() == 2 else value)
    found = [role for role, pattern in NAMES.items() if re.search(pattern, name)]
    assert len(found) <= 1, (name, found)
    return dict.fromkeys(found, value)


def _taken_apart(model: nn.Module, rows: Tensor) -> dict[str, Tensor]:
    config, columns = model.config, rows.shape[1:]
    match config.model_type:
        case "gpt2" | "modernbert":
            query, key, value = rows.view(3, -1, *columns)
        case "phi3":
            width = len(rows) // (HEADS + 2 * KEY_HEADS)
            query, key, value = rows.split([HEADS * width, KEY_HEADS * width, KEY_HEADS * width])
        case "falcon" if config.new_decoder_architecture:
            turns = rows.view(KEY_HEADS, HEADS // KEY_HEADS + 2, -1, *columns)
            query, key, value = turns[:, :-2], turns[:, -2], turns[:, -1]
        case "falcon" if config.multi_query:
            heads = rows.view(HEADS + 2, -1, *columns)
            query, key, value = heads[:-2], heads[-2], heads[-1]
        case _:
            query, key, value = rows.view(HEADS, 3, -1, *columns).unbind(1)
    return {role: part.reshape(-1, *columns) for role, part in (("query", query), ("key", key), ("value", value))}
