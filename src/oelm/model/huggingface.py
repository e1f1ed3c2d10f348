"""Our GPT as a Hugging Face model: OELMConfig, OrthogonalELMTransformer, and their place among the Auto classes.

A saved folder is the same as a run's best/ folder: the keys are the GPT's own, the weights safetensors only.
Loading freezes again what the spec says never moves; Hugging Face's loader makes every weight require gradients.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn import functional

from oelm.config import PROJECTIONS, Always, Attention, Model, Never, Projection, Seeds
from oelm.errors import UserError
from oelm.model.initialization import initialize
from oelm.model.parameters import frozen_names
from oelm.model.transformer import GPT

try:
    from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel
    from transformers.modeling_outputs import CausalLMOutput
except ImportError as error:
    raise ImportError(
        "OrthogonalELMTransformer needs Hugging Face transformers: pip install 'oelm[hf]'", name="transformers"
    ) from error

PREFIX = "gpt."
IGNORED_LABEL = -100


class OELMConfig(PretrainedConfig):
    """The fields of oelm.config.Model, and `freeze_qk`, which stands for an arm where `attention` is not given:
    frozen head-wise orthogonal queries and keys, or their trained twins."""

    model_type = "oelm"
    attribute_map = {  # noqa: RUF012 - the name and type transformers looks for
        "vocab_size": "vocabulary",
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "intermediate_size": "d_ff",
        "max_position_embeddings": "seq_len",
    }

    def __init__(
        self,
        vocabulary: int = 50257,
        seq_len: int = 512,
        d_model: int = 512,
        num_layers: int = 6,
        num_heads: int = 8,
        d_ff: int | None = None,
        dropout: float = 0.0,
        attention: dict[str, Any] | Attention | None = None,
        freeze_qk: bool = True,
        **kwargs: Any,
    ) -> None:
        self.vocabulary, self.seq_len, self.d_model = vocabulary, seq_len, d_model
        self.num_layers, self.num_heads, self.d_ff = num_layers, num_heads, d_ff or 4 * d_model
        self.dropout = float(dropout)
        if attention is None:
            heads = Projection(start="head_orthogonal", moves=Never() if freeze_qk else Always())
            attention = Attention(query=heads, key=heads)
        self.attention = attention.model_dump(mode="json") if isinstance(attention, Attention) else attention
        spec = self.as_model().attention
        self.freeze_qk = all(isinstance(projection.moves, Never) for projection in (spec.query, spec.key))
        super().__init__(**kwargs)

    def as_model(self) -> Model:
        tree = {name: getattr(self, name) for name in Model.model_fields}
        try:
            return Model.model_validate(tree)
        except ValidationError as error:
            problems = [f"{'.'.join(str(part) for part in p['loc'])}: {p['msg']}" for p in error.errors()]
            raise UserError("\n".join(f"OELMConfig: {problem}" for problem in problems)) from error


class OrthogonalELMTransformer(PreTrainedModel):
    """Built with starting values from torch's global generator, as Hugging Face users expect of set_seed."""

    config_class = OELMConfig
    base_model_prefix = PREFIX.rstrip(".")
    _supports_sdpa = True

    def __init__(self, config: OELMConfig) -> None:
        super().__init__(config)
        self.gpt = GPT(config.as_model())
        if self.device.type == "meta":
            # from_pretrained sets values by their stored names, and a partly frozen projection is stored whole.
            self.gpt = GPT(_unsplit(config.as_model()))
        else:
            seed = int(torch.randint(2**31, ()))
            initialize(self.gpt, Seeds(weights=seed, projections=seed))
        self.register_load_state_dict_pre_hook(_accept_bare_keys)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: all starting values come from `initialize`, and a file that lacks some is refused."""

    def get_input_embeddings(self) -> nn.Module:
        return self.gpt.token_embedding

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.gpt.token_embedding = value  # the output layer uses the same weight

    def forward(
        self,
        input_ids: Tensor,
        labels: Tensor | None = None,
        attention_mask: Tensor | None = None,
        return_dict: bool | None = None,
    ) -> CausalLMOutput | tuple[Tensor, ...]:
        """Logits of every position, and with `labels` (unshifted; -100 is left out) the mean cross-entropy."""
        self._check_inputs(input_ids, attention_mask)
        logits_BTV = self.gpt.logits(self.gpt(input_ids))
        loss = None if labels is None else _shifted_loss(logits_BTV, labels)
        output = CausalLMOutput(loss=loss, logits=logits_BTV)
        return output if return_dict or return_dict is None else output.to_tuple()

    def _check_inputs(self, input_ids: Tensor, attention_mask: Tensor | None) -> None:
        if input_ids.shape[1] > self.config.seq_len:
            raise UserError(f"input_ids: {input_ids.shape[1]} tokens, but the model's seq_len is {self.config.seq_len}")
        if attention_mask is not None and (attention_mask.diff(dim=1) > 0).any():
            raise UserError("attention_mask: padding must be on the right; the positions of the model are absolute")

    # -- files ---------------------------------------------------------------------------------------------------------

    def save_pretrained(
        self, save_directory: str | os.PathLike, *args: Any, state_dict: dict[str, Tensor] | None = None, **kwargs: Any
    ) -> None:
        """As Hugging Face's, with the GPT's own keys; never pickled."""
        state = {name.removeprefix(PREFIX): tensor for name, tensor in (state_dict or self.state_dict()).items()}
        super().save_pretrained(save_directory, *args, state_dict=state, **kwargs)

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | os.PathLike | None, *args: Any, **kwargs: Any
    ) -> OrthogonalELMTransformer:
        """As Hugging Face's, from safetensors only and from whole files only; what never moves is frozen again."""
        wants_information = kwargs.pop("output_loading_info", False)
        kwargs |= {"use_safetensors": True, "output_loading_info": True}
        model, information = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        lacking = sorted(str(key) for key in (*information["missing_keys"], *information["mismatched_keys"]))
        if lacking:
            raise UserError(f"{pretrained_model_name_or_path}: lacks weights of this config: {', '.join(lacking)}")
        model._split_projections()
        model.freeze()
        return (model, information) if wants_information else model

    def _split_projections(self) -> None:
        wanted = self.config.as_model()
        if self.gpt.config != wanted:
            split = GPT(wanted).to(self.device, self.dtype).train(self.training)
            split.load_state_dict(self.gpt.state_dict())
            self.gpt = split

    def freeze(self) -> None:
        """Switch gradients off for what never moves."""
        parameters = dict(self.named_parameters())
        for name in frozen_names(self):
            parameters[name].requires_grad_(False)


def _unsplit(model: Model) -> Model:
    """The same shapes, every projection one parameter."""
    return model.model_copy(update={"attention": Attention(**dict.fromkeys(PROJECTIONS, Projection()))})


def _shifted_loss(logits_BTV: Tensor, labels_BT: Tensor) -> Tensor:
    logits_NV, targets_N = logits_BTV[:, :-1].flatten(0, 1), labels_BT[:, 1:].flatten()
    kept = logits_NV.double() if logits_NV.dtype == torch.float64 else logits_NV.float()
    return functional.cross_entropy(kept, targets_N, ignore_index=IGNORED_LABEL)


def _accept_bare_keys(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """A saved folder holds the GPT's keys; load_state_dict of the whole model takes them as well."""
    for name in [name for name in state if name.startswith(prefix) and not name.startswith(f"{prefix}{PREFIX}")]:
        state[f"{prefix}{PREFIX}{name.removeprefix(prefix)}"] = state.pop(name)


AutoConfig.register(OELMConfig.model_type, OELMConfig, exist_ok=True)
AutoModelForCausalLM.register(OELMConfig, OrthogonalELMTransformer, exist_ok=True)
