"""Our GPT as a Hugging Face model: OELMConfig, OrthogonalELMTransformer, and their place among the Auto classes.

A saved folder is the same as a run's best/ folder: the keys are the GPT's own, the weights safetensors only.
Loading freezes again what the spec says never moves; Hugging Face's loader makes every weight require gradients.

B batch, T time of the input, S time seen so far (cache included), D model width, V vocabulary.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from oelm.config import ResolvedModel, Seeds
from oelm.errors import UserError
from oelm.huggingface.gpt_config import OELMConfig
from oelm.huggingface.library import transformers
from oelm.model.initialization import initialize
from oelm.model.parameters import check_weights_file, frozen_names
from oelm.model.transformer import GPT
from oelm.treatment.parts import BASELINE
from oelm.treatment.starts import STARTS, WEIGHT_STANDARD_DEVIATION

PREFIX = "gpt."
OUTPUT_WEIGHT = "lm_head.weight"
EMBEDDING_WEIGHT = f"{PREFIX}token_embedding.weight"


class OrthogonalELMTransformer(transformers.PreTrainedModel, transformers.GenerationMixin):
    """Built with starting values from torch's global generator, as Hugging Face users expect of set_seed."""

    config_class = OELMConfig
    base_model_prefix = PREFIX.rstrip(".")
    supports_gradient_checkpointing = True
    _tied_weights_keys = {OUTPUT_WEIGHT: EMBEDDING_WEIGHT}  # noqa: RUF012 - names and types transformers looks for
    _no_split_modules = ["Block"]  # noqa: RUF012
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012
    _supports_sdpa = True
    lm_head: nn.Module

    def __init__(self, config: OELMConfig) -> None:
        super().__init__(config)
        self.loss_type = "ForCausalLM"
        self.gradient_checkpointing = False
        self.gpt = GPT(config.as_model())
        if self.device.type == "meta":
            # from_pretrained sets values by their stored names, and a partly frozen projection is stored whole.
            self.gpt = GPT(_unsplit(config.as_model()))
        else:
            seed = int(torch.randint(2**31, ()))
            initialize(self.gpt, Seeds(weights=seed, projections=seed))
        # Without values of its own: post_init ties its weight to the embedding's.
        self.lm_head = nn.Linear(config.d_model, config.vocabulary, bias=False, device="meta")
        self.register_load_state_dict_pre_hook(_accept_bare_keys)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Starting values come from `initialize`, and a file that lacks some is refused; only the rows that
        resize_token_embeddings adds are drawn here, in a module that is not yet ours."""
        if isinstance(module, nn.Embedding | nn.Linear) and all(module is not own for own in self.modules()):
            nn.init.normal_(module.weight, std=WEIGHT_STANDARD_DEVIATION)

    def get_input_embeddings(self) -> nn.Module:
        return self.gpt.token_embedding

    def set_input_embeddings(self, value: Any) -> None:  # an nn.Embedding
        self.gpt.token_embedding = value
        self.gpt.config = self.gpt.config.model_copy(update={"vocabulary": value.weight.shape[0]})

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, value: nn.Module) -> None:
        self.lm_head = value

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> transformers.modeling_outputs.CausalLMOutputWithPast | tuple[Any, ...]:
        """Logits, and with `labels` (unshifted; -100 is left out) the mean cross-entropy.

        Padding, left or right, is what `attention_mask` (all positions seen so far, cache included) says it is;
        positions count the other tokens. A cache is used and returned outside training unless use_cache is False.
        """
        if output_attentions:
            raise UserError("output_attentions: attention weights are never stored; leave it out")
        if (input_ids is None) == (inputs_embeds is None):
            raise UserError("give either input_ids or inputs_embeds")
        x_BTD = self.gpt.token_embedding(input_ids) if inputs_embeds is None else inputs_embeds
        if use_cache is None:
            use_cache = past_key_values is not None or (self.config.use_cache and not self.training)
        if self._recomputes:  # twice, while a cache grows at each pass
            past_key_values, use_cache = None, False
        if use_cache and past_key_values is None:
            past_key_values = transformers.DynamicCache()

        past, time = 0 if past_key_values is None else int(past_key_values.get_seq_length()), x_BTD.shape[1]
        positions, visible = _positions_and_visible(attention_mask, past=past, time=time, device=x_BTD.device)
        positions = self._checked(positions if position_ids is None else position_ids)
        x_BTD = x_BTD + self.gpt.position_embedding(positions)
        x_BTD = functional.dropout(x_BTD, self.config.dropout, self.training)

        keeps_states = self._given(output_hidden_states, "output_hidden_states")
        states: list[Any] = [x_BTD] if keeps_states else []
        seen = past + time if visible is None else visible.shape[-1]
        for layer, block in enumerate(self.gpt.blocks):
            cache = None if past_key_values is None else _CacheOfLayer(past_key_values, layer, seen=seen)
            if self._recomputes:
                x_BTD = self._gradient_checkpointing_func(block.__call__, x_BTD, cache, visible)
            else:
                x_BTD = block(x_BTD, cache, visible)
            states += [x_BTD] if keeps_states else []
        x_BTD = self.gpt.final_norm(x_BTD)

        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits_BTV = self.lm_head(x_BTD[:, kept])
        output = transformers.modeling_outputs.CausalLMOutputWithPast(
            loss=None if labels is None else self.loss_function(logits_BTV, labels, self.config.vocabulary, **kwargs),
            logits=logits_BTV,
            past_key_values=past_key_values if use_cache else None,
            hidden_states=(*states[:-1], x_BTD) if keeps_states else None,
        )
        return output if self._given(return_dict, "return_dict") else output.to_tuple()

    @property
    def _recomputes(self) -> bool:
        return self.gradient_checkpointing and self.training

    def _given(self, value: bool | None, name: str) -> bool:
        return getattr(self.config, name) if value is None else value

    def _checked(self, positions: Tensor) -> Tensor:
        if int(positions.max()) >= self.config.seq_len:
            raise UserError(
                f"{int(positions.max()) + 1} tokens, but the model's seq_len is {self.config.seq_len}; "
                "give a shorter prompt, or limit max_length"
            )
        return positions

    # -- files ---------------------------------------------------------------------------------------------------------

    def save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        is_main_process: bool = True,
        state_dict: dict[str, Tensor] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """As Hugging Face's, with the GPT's own keys; never pickled."""
        whole = (state_dict or self.state_dict()).items()
        state = {name.removeprefix(PREFIX): tensor for name, tensor in whole if name != OUTPUT_WEIGHT}
        super().save_pretrained(save_directory, is_main_process, state, *args, **kwargs)

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike[str] | None, *args: Any, **kwargs: Any
    ) -> Any:
        """As Hugging Face's, from safetensors only and from whole files only; what never moves is frozen again."""
        wants_information = kwargs.pop("output_loading_info", False)
        kwargs |= {"use_safetensors": True, "output_loading_info": True}
        loaded: Any = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        model, information = loaded
        lacking = sorted(str(key) for key in (*information["missing_keys"], *information["mismatched_keys"]))
        if lacking:
            raise UserError(
                f"{pretrained_model_name_or_path}: weights of this config are missing: {', '.join(lacking)}"
            )
        folder = Path(pretrained_model_name_or_path or "", kwargs.get("subfolder", ""))
        weights = folder / transformers.utils.SAFE_WEIGHTS_NAME
        if weights.is_file():
            check_weights_file(weights)
        model._split_projections()
        model.freeze()
        return loaded if wants_information else model

    def _split_projections(self) -> None:
        wanted = self.config.as_model()
        if self.gpt.config != wanted:
            split = GPT(wanted).to(self.device, self.dtype).train(self.training)
            split.load_state_dict(self.gpt.state_dict())
            self.gpt = split
            self.tie_weights()

    def freeze(self) -> None:
        """Switch gradients off for what never moves."""
        parameters = dict(self.named_parameters())
        for name in frozen_names(self):
            parameters[name].requires_grad_(False)


class _CacheOfLayer:
    """One layer of a Hugging Face cache. A static one returns room for positions that are not yet there."""

    def __init__(self, cache: Any, layer: int, *, seen: int) -> None:
        self.cache, self.layer, self.seen = cache, layer, seen

    def extended(self, key_BHTK: Tensor, value_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.cache.update(key_BHTK, value_BHTK, self.layer)
        return keys[:, :, : self.seen], values[:, :, : self.seen]


def _positions_and_visible(
    attention_mask: Tensor | None, *, past: int, time: int, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Where each token stands, and what it sees; None: everything up to itself."""
    positions_S = torch.arange(past + time, device=device)
    if attention_mask is not None and attention_mask.ndim == 4:  # made by `generate` for a static cache
        return positions_S[past:], attention_mask
    if attention_mask is None or attention_mask.bool().all():
        return positions_S[past:], None
    if attention_mask.shape[1] != past + time:
        raise UserError(
            f"attention_mask: {attention_mask.shape[1]} positions, but {past + time} with the {past} of the cache"
        )
    real_BS = attention_mask.to(device).bool()
    own_TS = positions_S == positions_S[past:, None]  # padding sees itself: a row without anything has no softmax
    earlier_TS = positions_S <= positions_S[past:, None]
    visible_BTS = earlier_TS & (real_BS[:, None] | own_TS)
    return (real_BS.cumsum(1) - 1).clamp(min=0)[:, past:], visible_BTS[:, None]


def _unsplit(model: ResolvedModel) -> ResolvedModel:
    """The same shapes, every matrix of a projection one parameter."""
    whole = {role: BASELINE.of(role) for role, part in model.parts.items() if not STARTS[part.start].matrix_free}
    return model.model_copy(update={"parts": model.parts.model_copy(update=whole)})


def _accept_bare_keys(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """A saved folder holds the GPT's keys; load_state_dict of the whole model takes them as well."""
    ours = (f"{prefix}{PREFIX}", f"{prefix}{OUTPUT_WEIGHT}")
    for name in [name for name in state if name.startswith(prefix) and not name.startswith(ours)]:
        state[f"{prefix}{PREFIX}{name.removeprefix(prefix)}"] = state.pop(name)
    if f"{prefix}{EMBEDDING_WEIGHT}" in state:
        state.setdefault(f"{prefix}{OUTPUT_WEIGHT}", state[f"{prefix}{EMBEDDING_WEIGHT}"])


transformers.AutoConfig.register(OELMConfig.model_type, OELMConfig, exist_ok=True)
transformers.AutoModelForCausalLM.register(OELMConfig, OrthogonalELMTransformer, exist_ok=True)
