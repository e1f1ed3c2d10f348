"""When a weight moves, as sections of a config."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from oelm.core.sections import Positive, Section


class Always(Section):
    kind: Literal["always"] = Field(default="always", description="Trained at every update.")


class Never(Section):
    kind: Literal["never"] = Field(default="never", description="Never trained: keeps its initial values.")


class Every(Section):
    """Moves at updates N, 2N, 3N, ... and is frozen in between."""

    kind: Literal["every"] = Field(default="every", description="Trained at every N-th update only.")
    steps: Positive = Field(description="N: trained at updates N, 2N, 3N, ...")


class After(Section):
    """Frozen until this fraction of training is over. Layer by layer: the top layer thaws first."""

    kind: Literal["after"] = Field(default="after", description="Frozen at first, trained later.")
    fraction: float = Field(gt=0, lt=1, description="Fraction of training after which it is trained.")
    order: Literal["together", "layer_by_layer"] = Field(
        default="together", description="Unfreeze all layers at once, or one after another from the top."
    )


class Before(Section):
    """Moves until this fraction of training is over, then frozen."""

    kind: Literal["before"] = Field(default="before", description="Trained at first, frozen later.")
    fraction: float = Field(gt=0, lt=1, description="Fraction of training after which it is frozen.")


Moves = Annotated[Always | Never | Every | After | Before, Field(discriminator="kind")]


def values_of(moves: Moves) -> str:
    """As the settings say it: never; every 10; after 0.8 together."""
    return " ".join(str(value) for value in moves.model_dump().values())
