"""Whether anything that an arm treats is drawn: only then can another draw of it be another model."""

from __future__ import annotations

from typing import Any

from oelm.core.options import in_use
from oelm.core.parts import AS_GIVEN, BASELINE
from oelm.core.starts import STARTS


def draws_what_it_treats(model: Any) -> bool:
    """Of our GPT, the parts that are not the baseline's and what options add; of given weights, what starts anew."""
    untreated = BASELINE if hasattr(model, "repairs") else AS_GIVEN
    treated = (part for role, part in model.parts.items() if part != untreated.of(role))
    return any(STARTS[part.start].is_drawn for part in treated) or any(option.draws for option, _ in in_use(model))
