"""Our GPT as Hugging Face models: OELMModel (hidden states), OrthogonalELMTransformer (the next token) and
OELMForSequenceClassification (classes of texts). Each has the GPT under study as `gpt`, and its one forward pass.

A saved folder is the same as a run's best/ folder: the keys are the GPT's own, the weights safetensors only.
Loading freezes again what the spec says never moves; Hugging Face's loader makes every weight require gradients.

B batch, T time of the input, S time that is visible (cache included), D model width, V vocabulary, C classes.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from oelm.core.config import ResolvedModel, Seeds
from oelm.core.model.initialization import initialize
from oelm.core.model.parameters import check_weights_file, frozen_names
from oelm.core.model.transformer import GPT, Block
from oelm.core.moves import Always
from oelm.core.parts import Parts
from oelm.core.starts import WEIGHT_STANDARD_DEVIATION
from oelm.machine.errors import UserError
from oelm.models.gpt_config import OELMConfig
from oelm.models.library import transformers


class View(NamedTuple):
    """Where each token stands, and what it sees (None: everything up to itself)."""

    positions: Tensor  # T, or B by T
    visible: Tensor | None
    real: Tensor | None = None  # B by T: which tokens are no padding, where a mask says it


def view_of(
    attention_mask: Tensor | None,
    position_ids: Tensor | None,
    *,
    cache: Any,
    time: int,
    device: torch.device,
) -> View:
    past = 0 if cache is None else cache.get_seq_length()  # a number, or a tensor that only the device knows
    has_fixed_room = cache is not None and cache.is_compileable
    room = time if cache is None else cache.get_mask_sizes(time, 0)[0]
    places_T, places_S = torch.arange(time, device=device) + past, torch.arange(room, device=device)
    positions = places_T if position_ids is None else position_ids
    earlier_TS = places_S <= places_T[:, None]
    if attention_mask is not None and attention_mask.ndim == 4:  # as create_masks_for_generate makes them
        last_BS = attention_mask[:, 0, -1]  # who comes last sees all that is real, and itself
        real_BT = last_BS.index_select(1, places_T) if attention_mask.dtype == torch.bool else None
        return View(positions, attention_mask, real_BT)
    if attention_mask is None and has_fixed_room:
        return View(positions, earlier_TS)
    if attention_mask is None and position_ids is not None and cache is None:
        return View(positions, _same_text(position_ids) & earlier_TS)
    if attention_mask is None:
        return View(positions, None)
    if not has_fixed_room and attention_mask.shape[1] != room:
        raise UserError(
            f"attention_mask: {attention_mask.shape[1]} positions, but {room} with the {room - time} of the cache"
        )
    real_BS = attention_mask.to(device).bool()
    real_BT, real_BS = real_BS[:, -time:], functional.pad(real_BS, (0, room - real_BS.shape[1]))
    if position_ids is None:
        positions = (real_BS.cumsum(1) - 1).clamp(min=0).index_select(1, places_T)
    own_TS = places_S == places_T[:, None]  # padding sees itself: a row without anything has no softmax
    return View(positions, (earlier_TS & (real_BS[:, None] | own_TS))[:, None], real_BT)


def _same_text(positions_BT: Tensor) -> Tensor:
    """Several texts may stand in one row without padding: where positions do not go on by one, another text begins."""
    begins_BT = functional.pad(positions_BT[..., 1:] != positions_BT[..., :-1] + 1, (1, 0))
    text_BT = begins_BT.cumsum(-1)
    return (text_BT[..., :, None] == text_BT[..., None, :]).unsqueeze(-3)


class CacheOfLayer:
    """One layer of a Hugging Face cache; what repairs look back to is kept in further layers of it, after the model's,
    so that reordering, cropping and repeating a cache reach it too."""

    def __init__(self, cache: Any, layer: int, further: Iterator[int]) -> None:
        self.cache, self.layer, self.further = cache, layer, further

    def extended(self, key_BHTK: Tensor, value_BHTK: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.cache.update(key_BHTK, value_BHTK, self.layer)
        return keys, values

    def preceded(self, name: str, values: Tensor, count: int) -> Tensor:
        """Every pass asks for the same names in the same order, so a number is enough to find a layer again."""
        heads = values if values.dim() == 4 else values.unsqueeze(1)
        layer = next(self.further)
        while len(self.cache.layers) <= layer:
            first, kinds = self.cache.layers[0], transformers.cache_utils
            is_static = isinstance(first, kinds.StaticLayer)
            more = kinds.StaticLayer(max_cache_len=first.max_cache_len) if is_static else kinds.DynamicLayer()
            self.cache.layers.append(more)
        wanted = torch.arange(-count, heads.shape[2], device=heads.device) + self.cache.layers[layer].get_seq_length()
        kept, _ = self.cache.update(heads, heads[..., :0], layer)
        known: Tensor = kept.index_select(2, wanted.clamp(min=0)) * (wanted >= 0)[:, None]
        return known if values.dim() == 4 else known.squeeze(1)


def caches_of_layers(cache: Any, num_layers: int) -> list[CacheOfLayer]:
    if not cache.layers:
        cache.layers.extend(transformers.cache_utils.DynamicLayer() for _ in range(num_layers))
    further = itertools.count(num_layers)
    return [CacheOfLayer(cache, layer, further) for layer in range(num_layers)]


PREFIX = "gpt."
OUTPUT_WEIGHT = "lm_head.weight"
EMBEDDING_WEIGHT = f"{PREFIX}token_embedding.weight"
OWN_OUTPUT_LAYER = rf"^({re.escape(PREFIX)})?output_layer\."  # in names of weights, where it is not tied


class OELMBlock(transformers.modeling_layers.GradientCheckpointingLayer, Block):
    """One layer, which transformers can compute again on the way back."""


class OELMPreTrainedModel(transformers.PreTrainedModel):
    """What the three share: the GPT, its forward pass, and its files.

    Built with starting values from torch's global generator, as Hugging Face users expect of set_seed.
    """

    config_class = OELMConfig
    config: OELMConfig
    base_model_prefix = PREFIX.rstrip(".")
    supports_gradient_checkpointing = True
    _no_split_modules = ["OELMBlock"]  # noqa: RUF012 - names and types transformers looks for
    _skip_keys_device_placement = ["past_key_values"]  # noqa: RUF012
    _supports_sdpa = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _keys_to_ignore_on_load_unexpected = [OWN_OUTPUT_LAYER]  # noqa: RUF012 - which only the next token needs

    def __init__(self, config: OELMConfig, gpt: GPT | None = None) -> None:
        super().__init__(config)
        if gpt is not None:
            self.gpt = gpt
        elif torch.get_default_device().type == "meta":
            # from_pretrained sets values by their stored names, and a partly frozen projection is stored whole.
            self.gpt = GPT(_unsplit(self._spec()), block=OELMBlock)
        else:
            self.gpt = GPT(self._spec(), block=OELMBlock)
            seed = int(torch.randint(2**31, ()))
            initialize(self.gpt, Seeds(weights=seed, projections=seed))
        self.register_load_state_dict_pre_hook(_accept_bare_keys)

    def _init_weights(self, module: nn.Module) -> None:
        """The GPT's starting values come from `initialize`, and a file that lacks some is refused; drawn here are a new
        head, and the rows that resize_token_embeddings adds, in a module that is not yet ours."""
        if isinstance(module, nn.Embedding | nn.Linear) and all(module is not own for own in self.gpt.modules()):
            nn.init.normal_(module.weight, std=WEIGHT_STANDARD_DEVIATION)

    def _spec(self) -> ResolvedModel:
        """The GPT that this class has: without an output layer of its own, unless it needs one."""
        return self.config.as_model().model_copy(update={"tied": True})

    @property
    def base_model(self) -> OELMModel:
        """The same GPT, without a head."""
        return self if isinstance(self, OELMModel) else OELMModel(self.config, self.gpt)

    def get_input_embeddings(self) -> nn.Module:
        return self.gpt.token_embedding

    def set_input_embeddings(self, value: Any) -> None:  # an nn.Embedding
        self.gpt.token_embedding = value
        self.gpt.config = self.gpt.config.model_copy(update={"vocabulary": value.weight.shape[0]})

    # -- arithmetic ----------------------------------------------------------------------------------------------------

    def _hidden(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        past_key_values: Any,
        inputs_embeds: Tensor | None,
        use_cache: bool | None,
        *,
        output_hidden_states: bool | None,
        output_attentions: bool | None,
    ) -> Any:  # a BaseModelOutputWithPast
        """Nothing here asks a tensor for its values, so that it can be compiled and exported as one graph."""
        if (input_ids is None) == (inputs_embeds is None):
            raise UserError("give either input_ids or inputs_embeds")
        embedded_BTD = self.gpt.token_embedding(input_ids) if inputs_embeds is None else inputs_embeds
        cache = self._cache(past_key_values, use_cache)
        view = view_of(
            attention_mask, position_ids, cache=cache, time=embedded_BTD.shape[1], device=embedded_BTD.device
        )
        # By shapes alone, so padding counts; of a cache of fixed size, `generate` knows how much is filled.
        if position_ids is None and (cache is None or not cache.is_compileable):
            self._check_positions(embedded_BTD.shape[1] + (0 if cache is None else cache.get_seq_length()))
        states: list[Any] = []
        weights: list[Any] = []
        keeps_states = self._given(output_hidden_states, "output_hidden_states")
        keeps_weights = self._given(output_attentions, "output_attentions")
        is_plain = keeps_weights or self.config._attn_implementation == "eager"
        hidden_BTD: Any = self.gpt.hidden(
            embedded_BTD,
            view.positions,
            None if cache is None else caches_of_layers(cache, self.config.num_layers),
            visible=view.visible,
            real=view.real,
            states=states if keeps_states else None,
            weights=weights if is_plain else None,
        )
        return transformers.modeling_outputs.BaseModelOutputWithPast(
            last_hidden_state=hidden_BTD,
            past_key_values=cache,
            hidden_states=tuple(states) if keeps_states else None,
            attentions=tuple(weights) if keeps_weights else None,
        )

    def _cache(self, given: Any, use_cache: bool | None) -> Any:
        """The given one, a new one, or none: layers that are computed twice would fill it twice."""
        if self.training and self.gpt.blocks[0].gradient_checkpointing:
            return None
        if given is not None:
            return given
        wanted = self.config.use_cache and not self.training if use_cache is None else use_cache
        return transformers.DynamicCache(config=self.config) if wanted else None

    def _check_positions(self, number: int) -> None:
        if self.config.positions == "learned" and number > self.config.seq_len:
            raise UserError(
                f"{number} tokens, but the model's seq_len is {self.config.seq_len}; "
                "give a shorter prompt, or limit max_length"
            )

    def _check_tied(self) -> None:
        """A model is built with its output layer tied, or not; a config that is changed later says otherwise."""
        if self.get_output_embeddings() is not None and self.config.tied != self.gpt.config.tied:
            raise UserError(
                f"tie_word_embeddings: this model was built with {self.gpt.config.tied}; "
                "set it in the config before a model is built of it"
            )

    def _given(self, value: bool | None, name: str) -> bool:
        return getattr(self.config, name, False) if value is None else value

    def _returned(self, output: Any, return_dict: bool | None) -> Any:
        return output if self._given(return_dict, "return_dict") else output.to_tuple()

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
        self._check_tied()
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
        keys = (str(key) for key in (*information["missing_keys"], *information["mismatched_keys"]))
        lacking = sorted(key for key in keys if key.startswith(PREFIX) or key == OUTPUT_WEIGHT)
        if lacking:
            raise UserError(
                f"{pretrained_model_name_or_path}: weights of this config are missing: {', '.join(lacking)}"
            )
        if model.get_output_embeddings() is not None and model.config.tied:
            own = [key for key in map(str, information["unexpected_keys"]) if re.match(OWN_OUTPUT_LAYER, key)]
            if own:
                raise UserError(
                    f"{pretrained_model_name_or_path}: has an output layer of its own ({', '.join(own)}), but "
                    "tie_word_embeddings is true; leave it false"
                )
        folder = Path(pretrained_model_name_or_path or "", kwargs.get("subfolder", ""))
        weights = folder / transformers.utils.SAFE_WEIGHTS_NAME
        if weights.is_file():
            check_weights_file(weights)
        model._split_projections()
        model.freeze()
        return loaded if wants_information else model

    def _split_projections(self) -> None:
        """Where the spec treats rows of one weight apart. What stays on a disk is only read: it stays whole."""
        wanted = self._spec()
        with torch.device("meta"):
            split = GPT(wanted, block=OELMBlock)
        for name, module in list(split.named_modules()):
            whole = self.gpt.get_submodule(name)
            if _own_names(module) == _own_names(whole) or any(p.is_meta for p in whole.parameters()):
                continue
            like = next(whole.parameters())
            module.to_empty(device=like.device).to(like.dtype).train(whole.training)
            module.load_state_dict(whole.state_dict())
            self.gpt.set_submodule(name, module)
        self.gpt.config = wanted

    def freeze(self) -> None:
        """Switch gradients off for what never moves."""
        parameters = dict(self.named_parameters())
        for name in frozen_names(self):
            parameters[name].requires_grad_(False)


class OELMModel(OELMPreTrainedModel):
    """Hidden states after the final norm."""

    def __init__(self, config: OELMConfig, gpt: GPT | None = None) -> None:
        super().__init__(config, gpt)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> Any:  # a BaseModelOutputWithPast, or its values as a tuple
        """Padding and caches as in OrthogonalELMTransformer."""
        output = self._hidden(
            input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, use_cache,
            output_hidden_states=output_hidden_states, output_attentions=output_attentions,
        )  # fmt: skip
        return self._returned(output, return_dict)


class OrthogonalELMTransformer(OELMPreTrainedModel, transformers.GenerationMixin):
    """The next token. Its output layer is the token embedding (then `lm_head` has the same weight), or, with
    tie_word_embeddings=False, the GPT's own `gpt.output_layer`."""

    _tied_weights_keys = {OUTPUT_WEIGHT: EMBEDDING_WEIGHT}  # noqa: RUF012
    _keys_to_ignore_on_load_unexpected: list[str] = []  # noqa: RUF012
    lm_head: nn.Module  # where it is tied

    def __init__(self, config: OELMConfig) -> None:
        super().__init__(config)
        self.loss_type = "ForCausalLM"
        if config.tied:
            self.lm_head = nn.Linear(config.d_model, config.vocabulary, bias=False, device="meta")
            self.lm_head.weight = self.gpt.token_embedding.weight
        self.post_init()

    def _spec(self) -> ResolvedModel:
        return self.config.as_model()

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head if self.gpt.config.tied else self.gpt.output_layer

    def set_output_embeddings(self, value: Any) -> None:  # an nn.Linear
        if self.gpt.config.tied:
            self.lm_head = value
        else:
            self.gpt.output_layer = value

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
    ) -> Any:  # a CausalLMOutputWithPast, or its values as a tuple
        """Logits, and with `labels` (unshifted; -100 is left out) the mean cross-entropy.

        Padding, left or right, is what `attention_mask` (all positions seen so far, cache included) says it is;
        positions count the other tokens. A cache is used and returned outside training unless use_cache is False.
        """
        self._check_tied()
        found = self._hidden(
            input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, use_cache,
            output_hidden_states=output_hidden_states, output_attentions=output_attentions,
        )  # fmt: skip
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits_BTV = self.get_output_embeddings()(found.last_hidden_state[:, kept])
        output = transformers.modeling_outputs.CausalLMOutputWithPast(
            loss=None if labels is None else self.loss_function(logits_BTV, labels, self.config.vocabulary, **kwargs),
            logits=logits_BTV,
            past_key_values=found.past_key_values,
            hidden_states=found.hidden_states,
            attentions=found.attentions,
        )
        return self._returned(output, return_dict)

    @staticmethod
    def create_masks_for_generate(
        config: OELMConfig,
        inputs_embeds: Tensor,
        attention_mask: Tensor | None,
        past_key_values: Any,
        position_ids: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor | None:
        """What `generate` computes outside the model for a static cache: B 1 T S."""
        batch, time = inputs_embeds.shape[:2]
        view = view_of(attention_mask, position_ids, cache=past_key_values, time=time, device=inputs_embeds.device)
        if view.visible is None:
            return None
        return view.visible.expand(batch, 1, *view.visible.shape[-2:])

    def prepare_inputs_for_generation(self, input_ids: Tensor, *args: Any, **kwargs: Any) -> dict[str, Any]:
        self._check_positions(input_ids.shape[1])
        prepare: Any = transformers.GenerationMixin.prepare_inputs_for_generation
        prepared: dict[str, Any] = prepare(self, input_ids, *args, **kwargs)
        return prepared


class OELMForSequenceClassification(OELMPreTrainedModel):
    """Scores of classes from the last token of a text."""

    def __init__(self, config: OELMConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.score = nn.Linear(config.d_model, int(config.num_labels or 0), bias=False)
        self.post_init()

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
        **kwargs: Any,
    ) -> Any:  # a SequenceClassifierOutputWithPast, or its values as a tuple
        """The last token is what `attention_mask` says; without one, the last that is not config.pad_token_id."""
        found = self._hidden(
            input_ids, attention_mask, position_ids, past_key_values, inputs_embeds, use_cache,
            output_hidden_states=output_hidden_states, output_attentions=output_attentions,
        )  # fmt: skip
        hidden_BTD = found.last_hidden_state
        last_B = self._last(input_ids, attention_mask, hidden_BTD)
        logits_BC = self.score(hidden_BTD[torch.arange(len(hidden_BTD), device=hidden_BTD.device), last_B])
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits_BC, logits=logits_BC, config=self.config)
        output = transformers.modeling_outputs.SequenceClassifierOutputWithPast(
            loss=loss,
            logits=logits_BC,
            past_key_values=found.past_key_values,
            hidden_states=found.hidden_states,
            attentions=found.attentions,
        )
        return self._returned(output, return_dict)

    def _last(self, input_ids: Tensor | None, attention_mask: Tensor | None, hidden_BTD: Tensor) -> Tensor:
        """The place of each text's last token; of a text that is all padding, its first."""
        time, padding = hidden_BTD.shape[1], self.config.pad_token_id
        if attention_mask is not None and attention_mask.ndim == 2:
            real_BT = attention_mask[:, -time:].to(hidden_BTD.device).bool()
        elif input_ids is not None and padding is not None:
            real_BT = input_ids != padding
        else:
            real_BT = torch.ones(hidden_BTD.shape[:2], dtype=torch.bool, device=hidden_BTD.device)
        places_T = torch.arange(time, device=hidden_BTD.device)
        return (places_T * real_BT).argmax(1)


# ---- Stored names --------------------------------------------------------------------------------------------------


def _unsplit(model: ResolvedModel) -> ResolvedModel:
    """The same shapes, every projection one parameter."""
    whole = {"share": 1.0, "moves": Always()}
    parts = {role: part.model_copy(update=whole) if part.share < 1 else part for role, part in model.parts.items()}
    return model.model_copy(update={"parts": Parts(**parts)})


def _own_names(module: nn.Module) -> set[str]:
    return {name for name, _ in module.named_parameters(recurse=False)}


def _accept_bare_keys(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """A saved folder holds the GPT's keys; load_state_dict of the whole model takes them as well."""
    ours = tuple(f"{prefix}{name}." for name, _ in module.named_children())
    for name in [name for name in state if name.startswith(prefix) and not name.startswith(ours)]:
        state[f"{prefix}{PREFIX}{name.removeprefix(prefix)}"] = state.pop(name)
    if f"{prefix}{EMBEDDING_WEIGHT}" in state and hasattr(module, "lm_head"):
        state.setdefault(f"{prefix}{OUTPUT_WEIGHT}", state[f"{prefix}{EMBEDDING_WEIGHT}"])


transformers.AutoConfig.register(OELMConfig.model_type, OELMConfig, exist_ok=True)
transformers.AutoModel.register(OELMConfig, OELMModel, exist_ok=True)
transformers.AutoModelForCausalLM.register(OELMConfig, OrthogonalELMTransformer, exist_ok=True)
transformers.AutoModelForSequenceClassification.register(OELMConfig, OELMForSequenceClassification, exist_ok=True)
