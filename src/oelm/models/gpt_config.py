"""OELMConfig: our GPT's settings as a Hugging Face config.

Apart from the model, because `oelm.models.registration` gives it to AutoConfig as soon as that is imported, when
the rest of transformers may be half-imported. The first config that is made brings the model class with it.
"""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

from pydantic import ValidationError

from oelm.core.config import Model, ResolvedModel, parts_of_attention, resolved_model
from oelm.core.moves import Always, Never
from oelm.core.parts import Part, Parts
from oelm.core.scores import Positions
from oelm.machine.errors import UserError
from oelm.models.library import transformers


class OELMConfig(transformers.PretrainedConfig):
    """The fields of oelm.core.config.Model, and `freeze_qk`, which stands for an arm where `parts` is not given:
    frozen head-wise orthogonal queries and keys, or their trained twins."""

    model_type = "oelm"
    model_module: ClassVar[str | None] = None  # imported with the first config: oelm.models.registration says it
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012 - the name and type transformers looks for
    attribute_map = {  # noqa: RUF012
        "vocab_size": "vocabulary",
        "hidden_size": "d_model",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "intermediate_size": "d_ff",
        "max_position_embeddings": "seq_len",
        "tie_word_embeddings": "tied",
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
        positions: Positions = "learned",
        tied: bool | None = None,
        scores: dict[str, Any] | None = None,
        repairs: dict[str, Any] | None = None,
        parts: dict[str, Any] | Parts | None = None,
        freeze_qk: bool = True,
        use_cache: bool = True,
        bos_token_id: int | None = None,
        eos_token_id: int | None = None,
        pad_token_id: int | None = None,
        tie_word_embeddings: bool | None = None,
        **kwargs: Any,
    ) -> None:
        if self.model_module is not None:
            importlib.import_module(self.model_module)
        given = {bool(value) for value in (tied, tie_word_embeddings) if value is not None}
        if len(given) > 1:
            raise UserError(
                f"OELMConfig: tie_word_embeddings: {tie_word_embeddings}, but tied is {tied}; give one of them"
            )
        self.bos_token_id, self.eos_token_id, self.pad_token_id = bos_token_id, eos_token_id, pad_token_id
        self.vocabulary, self.seq_len, self.d_model = vocabulary, seq_len, d_model
        self.num_layers, self.num_heads, self.d_ff = num_layers, num_heads, d_ff or 4 * d_model
        self.dropout, self.use_cache = float(dropout), use_cache
        self.positions, self.tied = positions, given != {False}
        self.scores, self.repairs = scores or {}, repairs or {}
        older = kwargs.pop("attention", None)  # stored before every part could be spoken of
        if parts is None and older is not None:
            parts = parts_of_attention(older, "gpt")
        if parts is None:
            heads = Part(start="head_orthogonal", moves=Never() if freeze_qk else Always())
            parts = Parts(query=heads, key=heads)
        self.parts = parts.model_dump(mode="json") if isinstance(parts, Parts) else parts
        spec = self.as_model().parts
        self.freeze_qk = all(isinstance(part.moves, Never) for part in (spec.query, spec.key))
        super().__init__(**kwargs | {"tie_word_embeddings": self.tied})

    def as_model(self) -> ResolvedModel:
        tree = {name: getattr(self, name) for name in Model.model_fields}
        try:
            return resolved_model(Model.model_validate(tree))
        except ValidationError as error:
            problems = [f"{'.'.join(str(part) for part in p['loc'])}: {p['msg']}" for p in error.errors()]
            raise UserError("\n".join(f"OELMConfig: {problem}" for problem in problems)) from error
