"""Models of the transformers library, two layers wide 16 to 32, started at random, with something to learn."""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers
from torch import Tensor, nn

VOCABULARY, LENGTH, LABELS = 50, 8, 3
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_WORDS = {"vocab_size": VOCABULARY}
_LENGTH = {"max_position_embeddings": LENGTH + 4, "num_labels": LABELS}
_SPECIAL = {"bos_token_id": 1, "eos_token_id": 1}
_ENCODER = _WORDS | _SIZES | _LENGTH | {"intermediate_size": 48}
_DECODER = _ENCODER | {"num_key_value_heads": 2, "pad_token_id": 0}
_VIT = _SIZES | {"intermediate_size": 48, "image_size": 8, "patch_size": 4, "num_labels": LABELS}
_DISTILBERT = _WORDS | _LENGTH | {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
_GPT2 = _WORDS | {
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": LENGTH + 4,
    "num_labels": LABELS,
    "pad_token_id": 0,
}
_FUSED = _WORDS | _SIZES | _SPECIAL
_DEBERTA = _ENCODER | {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_buckets": 4,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "pooler_hidden_size": 32,
}
_MODERNBERT = (
    _ENCODER | _SPECIAL | {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 1, "reference_compile": False}
)

# kind -> class with a loss, class of its config, settings
KINDS: dict[str, tuple[str, str, dict]] = {
    "bert": ("BertForSequenceClassification", "BertConfig", _ENCODER),
    "roberta": ("RobertaForSequenceClassification", "RobertaConfig", _ENCODER),
    "xlm_roberta": ("XLMRobertaForSequenceClassification", "XLMRobertaConfig", _ENCODER),
    "camembert": ("CamembertForSequenceClassification", "CamembertConfig", _ENCODER),
    "electra": ("ElectraForSequenceClassification", "ElectraConfig", _ENCODER | {"embedding_size": 16}),
    "distilbert": ("DistilBertForSequenceClassification", "DistilBertConfig", _DISTILBERT),
    "vit": ("ViTForImageClassification", "ViTConfig", _VIT),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", _GPT2),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _DECODER),
    "mistral": ("MistralForCausalLM", "MistralConfig", _DECODER),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", _DECODER),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", _DECODER | {"head_dim": 16}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", _DECODER | {"head_dim": 16}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", _DECODER | {"head_dim": 16}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", _DECODER | {"head_dim": 16}),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", _DECODER | _SPECIAL),
    "smollm3": ("SmolLM3ForCausalLM", "SmolLM3Config", _DECODER | _SPECIAL),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", _DECODER | {"num_local_experts": 2, "num_experts_per_tok": 2}),
    "phi": ("PhiForCausalLM", "PhiConfig", _DECODER | {"qk_layernorm": True}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", _DECODER | _SPECIAL),
    "opt": ("OPTForCausalLM", "OPTConfig", _DECODER | {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", _FUSED | {"intermediate_size": 48}),
    "bloom": ("BloomForCausalLM", "BloomConfig", _FUSED),
    "falcon": ("FalconForCausalLM", "FalconConfig", _FUSED),  # one key for all heads
    "falcon_grouped": (
        "FalconForCausalLM",
        "FalconConfig",
        _FUSED | {"new_decoder_architecture": True, "num_kv_heads": 2},
    ),
    "falcon_by_head": (
        "FalconForCausalLM",
        "FalconConfig",
        _FUSED | {"multi_query": False, "bias": True, "alibi": True},
    ),
    "modernbert": ("ModernBertForSequenceClassification", "ModernBertConfig", _MODERNBERT),
    "deberta_v2": ("DebertaV2ForSequenceClassification", "DebertaV2Config", _DEBERTA),
    "deit": ("DeiTForImageClassification", "DeiTConfig", _VIT),
    "dinov2": ("Dinov2ForImageClassification", "Dinov2Config", _VIT | {"mlp_ratio": 2, "use_swiglu_ffn": True}),
}


def tiny(kind: str, cls: str | None = None, *, seed: int = 0, **settings: object) -> nn.Module:
    """The model, in evaluation mode; its biases are drawn too, so that setting one to zero shows."""
    default, config, given = KINDS[kind]
    transformers.set_seed(seed)
    model = getattr(transformers, cls or default)(getattr(transformers, config)(**(given | settings)))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.02)
    model.config.architectures = [type(model).__name__]
    return model.eval()


def batch(model: nn.Module, *, size: int = 4, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    if "ImageClassification" in model.config.architectures[0]:
        pixels = torch.randn(size, 3, 8, 8, generator=generator).to(model.dtype)
        return {"pixel_values": pixels, "labels": torch.randint(LABELS, (size,), generator=generator)}
    ids = torch.randint(3, VOCABULARY, (size, LENGTH), generator=generator)
    per_token = any(word in model.config.architectures[0] for word in ("CausalLM", "LMHead"))
    labels = ids if per_token else torch.randint(LABELS, (size,), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}


def fine_tuned(model: nn.Module, steps: int = 20, *, after_each: Callable[[int], None] = lambda step: None) -> None:
    """Real steps with AdamW and decay on everything that requires a gradient."""
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, weight_decay=0.1)
    model.train()
    for step in range(1, steps + 1):
        model(**batch(model, seed=step)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        after_each(step)
    model.eval()


class Examples(torch.utils.data.Dataset):
    """As a Trainer wants them."""

    def __init__(self, model: nn.Module, count: int = 16) -> None:
        self._batch = batch(model, size=count, seed=99)

    def __len__(self) -> int:
        return len(self._batch["labels"])

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {name: value[index] for name, value in self._batch.items()}
