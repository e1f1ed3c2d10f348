"""What an arm is: what it says of the parts, of the scores and of repairs.

Its parts are all of them: one that it does not mention is the baseline's. Of scores and repairs it decides only what it
sets; everything else is left to the model, and so are positions.
"""

from __future__ import annotations

from typing import Any

from oelm.core.parts import BASELINE, Parts, for_given_weights
from oelm.core.repairs import NO_REPAIRS, Repairs
from oelm.core.scores import PLAIN_SCORES, Scores
from oelm.core.sections import Section


class Treatment(Section):
    parts: Parts = BASELINE
    scores: Scores = PLAIN_SCORES
    repairs: Repairs = NO_REPAIRS

    @property
    def own_settings(self) -> dict[str, Any]:
        """What it decides of a model, by the model's keys."""
        options = self.model_dump(mode="json", exclude={"parts"}, exclude_unset=True)
        return {"parts": self.parts.model_dump(mode="json"), **options}

    def resolved(self, *, d_model: int) -> Treatment:
        """The same with what it leaves to a rule decided, in a model of this width."""
        return self.model_copy(update={"repairs": self.repairs.resolved(d_model=d_model)})

    @property
    def governs_parts_alone(self) -> bool:
        return not self.model_dump(exclude={"parts"}, exclude_unset=True)

    def for_given_weights(self) -> Treatment:
        """The same for a model that comes with weights."""
        return self.model_copy(update={"parts": for_given_weights(self.parts)})
