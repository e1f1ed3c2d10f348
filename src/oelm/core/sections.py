"""What a section of a config is made of: strict, frozen, nothing unknown; whole numbers, counts and shares."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag


def _whole_number(value: Any) -> Any:
    """YAML and --set write a thousand as 1000 or as 1e3; both are whole numbers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


MOST_DIGITS = 20  # of a whole number: any 64-bit seed has fewer, and files.py reads back more


def _not_too_long(value: int) -> int:
    if abs(value) >= 10**MOST_DIGITS:
        raise ValueError(TOO_LONG)
    return value


TOO_LONG = f"must have at most {MOST_DIGITS} digits"
Whole = Annotated[int, BeforeValidator(_whole_number), AfterValidator(_not_too_long)]
Positive = Annotated[Whole, Field(ge=1)]
Count = Annotated[Whole, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]

# Settings by their keys, or a value: what is wrong is said of the one that was written. Pydantic has these tags in the
# place of a problem, which problems as people read them do not show.
KEYED_TAG, VALUE_TAG = "(keyed)", "(value)"
Keyed = Annotated[dict[str, Any], Tag(KEYED_TAG)]
keyed_or_value = Discriminator(lambda given: KEYED_TAG if isinstance(given, dict) else VALUE_TAG)


# A field that has one value left. It stays in stored configs, and so in the identity of runs.
RETIRED: dict[str, Any] = {"retired": True}


class Section(BaseModel):
    """Every field says what it means in its description: `oelm keys` shows it with type, bounds and default."""

    gone: ClassVar[dict[str, str]] = {}  # keys of earlier versions, each with what to write instead
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)
