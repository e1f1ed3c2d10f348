"""Small trained additions to frozen or trained parts, as sections of a config. Each starts as if it were not there."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from oelm.core.sections import RETIRED, Count, Section

WIDTH_PER_RANK = 128  # of the model, for each rank of a residual that states none
Projection = Literal["query", "key", "value", "output", "up", "down"]


class Residual(Section):
    """A trained product of two thin matrices beside a part, zero at the start."""

    rank: Count | None = Field(
        default=0, description="Rank of the product; 0: no residual; null: d_model / 128, at least 1."
    )
    on: list[Projection] = Field(default=["query", "key"], description="Parts that have one.")
    nonlinear: bool = Field(default=False, description="A GELU between the two matrices.")

    def resolved(self, *, d_model: int) -> ResolvedResidual:
        rank = max(1, d_model // WIDTH_PER_RANK) if self.rank is None else self.rank
        return ResolvedResidual.model_construct(**dict(self) | {"rank": rank})


class ResolvedResidual(Residual):
    rank: Count


class Shift(Section):
    """k + mu k_previous: each token adds a trained share of its predecessor's, zero at the start."""

    per: Literal["none", "head", "channel"] = Field(
        default="none", description="none: no shift; else one trained share for each head, or for each channel."
    )
    on: list[Literal["key", "value"]] = Field(default=["key"], description="What is shifted: keys, values or both.")


class Convolution(Section):
    """x + a causal depthwise convolution of x before attention, zero at the start."""

    width: Count = Field(default=0, description="Tokens it sees, the current one included; 0: no convolution.")


def _gone(given: list[Any]) -> list[Any]:
    if given:
        raise ValueError("was removed; leave it out (scores.temperature.kind: per_head scales scores)")
    return given


class Repairs(Section):
    residual: Residual = Residual()
    base_scale: Annotated[list[Any], AfterValidator(_gone)] = Field(default=[], json_schema_extra=RETIRED)
    shift: Shift = Shift()
    convolution: Convolution = Convolution()

    def resolved(self, *, d_model: int) -> ResolvedRepairs:
        """What it does not state stays unstated, so that an arm still decides only what it sets."""
        values = dict(self) | {"residual": self.residual.resolved(d_model=d_model)}
        return ResolvedRepairs.model_construct(_fields_set=self.model_fields_set, **values)


class ResolvedRepairs(Repairs):
    residual: ResolvedResidual


NO_REPAIRS = Repairs()
