"""How attention scores are formed from queries and keys, as sections of a config. The defaults are the baseline's."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from oelm.core.sections import Positive, Section

Positions = Literal["learned", "rotary", "none"]


class Temperature(Section):
    """Multiplies the scores; 1 at the start."""

    kind: Literal["fixed", "per_head"] = Field(
        default="fixed", description="fixed: none; per_head: one trained factor for each head, 1 at the start."
    )


TOKENS = "tokens"


class Scores(Section):
    source: Literal["tokens", "distance", "nothing"] = Field(
        default="tokens",
        description="What scores follow from. tokens: products of queries and keys; distance: trained waves of the "
        "distance, the same for all tokens; nothing: all scores are equal. Only the first has queries and keys.",
    )
    temperature: Temperature = Temperature()
    query_key_norm: bool = Field(
        default=False, description="Queries and keys of a head are divided by their RMS and have a trained gain."
    )
    query_key_width: Positive | None = Field(
        default=None, description="Width of the queries and keys of one head; null: d_model / num_heads."
    )

    @model_serializer(mode="wrap")
    def _without_what_always_was(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Scores from tokens are not written down: what runs were before there were others, they are still."""
        tree: dict[str, Any] = handler(self)
        return {key: value for key, value in tree.items() if (key, value) != ("source", TOKENS)}

    def resolved(self, *, d_model: int, num_heads: int) -> ResolvedScores:
        width = self.query_key_width or d_model // num_heads
        return ResolvedScores.model_construct(**dict(self) | {"query_key_width": width})


class ResolvedScores(Scores):
    query_key_width: Positive


PLAIN_SCORES = Scores()
