"""Named arms: every treatment and control as data. A new method is a new entry here, not a new class."""

from __future__ import annotations

from typing import Any

from oelm.core.aliases import ALIASES
from oelm.core.moves import After, Always, Before, Every, Moves, Never
from oelm.core.parts import BASELINE, ROLES, Part, Parts, for_given_weights
from oelm.core.repairs import NO_REPAIRS, Convolution, Repairs, Residual, Shift
from oelm.core.scores import PLAIN_SCORES, Scores, Temperature
from oelm.core.sections import Section
from oelm.machine.errors import UserError, did_you_mean


class Treatment(Section):
    """What an arm is: what it says of the parts, of the scores and of repairs.

    Its parts are all of them: one that it does not mention is the baseline's. Of scores and repairs it decides only
    what it sets; everything else is left to the model, and so are positions.
    """

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


MATRICES_OF_A_LAYER = ("query", "key", "value", "output", "up", "down")


def _treated(*roles: str, start: str = "orthogonal", **changes: object) -> Treatment:
    """These parts alike, all others as the baseline has them."""
    return Treatment(parts=Parts(**{role: Part.model_validate({"start": start, **changes}) for role in roles}))


def _query_and_key(start: str = "normal", moves: Moves | None = None, share: float = 1.0) -> Treatment:
    return _treated("query", "key", start=start, moves=moves or Always(), share=share)


def _frozen(*roles: str, start: str = "orthogonal") -> Treatment:
    return _treated(*roles, start=start, moves=Never())


# Groups as `oelm arms` shows them; the order of all arms is theirs.
STARTS_OF_QUERIES_AND_KEYS: dict[str, Treatment] = {
    "trained": Treatment(parts=BASELINE),
    # Is it the start? Trained twins of the frozen arms, equal to them bit for bit before the first update.
    "trained_scaled_normal": _query_and_key("scaled_normal"),
    "trained_orthogonal": _query_and_key("orthogonal"),
    "trained_head_orthogonal": _query_and_key("head_orthogonal"),
    # The idea, head-wise and over the whole matrix.
    "frozen_orthogonal": _query_and_key("orthogonal", Never()),
    "frozen_head_orthogonal": _query_and_key("head_orthogonal", Never()),
    # Controls: is it the freezing, the orthogonality, or the scale?
    "frozen_normal": _query_and_key("normal", Never()),
    "frozen_scaled_normal": _query_and_key("scaled_normal", Never()),
    "frozen_binary": _query_and_key("binary", Never()),
    "trained_binary": _query_and_key("binary"),
    # Partly frozen: a share of the heads.
    "frozen_half": _query_and_key("head_orthogonal", Never(), share=0.5),
    "frozen_quarter": _query_and_key("head_orthogonal", Never(), share=0.25),
}
# No matrix and no product: what a query and a key can do with channels that they only select, reorder or mix.
WITHOUT_A_MATRIX: dict[str, Treatment] = {
    "identity_query": _frozen("query", start="identity"),
    "frozen_selection": _frozen("query", "key", start="selection"),
    "frozen_signed_permutation": _frozen("query", "key", start="signed_permutation"),
    "frozen_hadamard": _frozen("query", "key", start="hadamard"),
}
SCHEDULES: dict[str, Treatment] = {
    "every_n": _query_and_key("head_orthogonal", Every(steps=10)),
    "late_unfreeze": _query_and_key("head_orthogonal", After(fraction=0.8)),
    "progressive_unfreeze": _query_and_key("head_orthogonal", After(fraction=0.5, order="layer_by_layer")),
    "train_then_freeze": _query_and_key("head_orthogonal", Before(fraction=0.2)),
}
SINGLE_PARTS: dict[str, Treatment] = {
    # At an orthogonal start, and the trained twin. At 0.02 a frozen feed-forward layer is nearly none.
    "frozen_query": _frozen("query"),
    "trained_orthogonal_query": _treated("query"),
    "frozen_key": _frozen("key"),
    "trained_orthogonal_key": _treated("key"),
    "frozen_value": _frozen("value"),
    "trained_orthogonal_value": _treated("value"),
    "frozen_output": _frozen("output"),
    "trained_orthogonal_output": _treated("output"),
    "frozen_up": _frozen("up"),
    "trained_orthogonal_up": _treated("up"),
    "frozen_down": _frozen("down"),
    "trained_orthogonal_down": _treated("down"),
    "frozen_feed_forward": _frozen("up", "down"),
    "trained_orthogonal_feed_forward": _treated("up", "down"),
    # Frozen as the baseline starts them; a tied output layer is the token embedding.
    "frozen_embedding": _frozen("token_embedding", start=ROLES["token_embedding"].start),
    "frozen_norms": _frozen("norm", start=ROLES["norm"].start),
}
WHOLE_LAYERS: dict[str, Treatment] = {
    # Every second layer frozen as a whole.
    "reservoir": Treatment(
        parts=Parts(
            **{role: Part(start="orthogonal", moves=Never(), layers="odd") for role in MATRICES_OF_A_LAYER},
            norm=Part(start=ROLES["norm"].start, moves=Never(), layers="odd"),
        )
    ),
    "trained_reservoir": _treated(*MATRICES_OF_A_LAYER, layers="odd"),
}


def _frozen_and_trained(name: str, **options: Scores | Repairs) -> dict[str, Treatment]:
    """Orthogonal queries and keys, frozen and trained, with the same options."""
    return {
        f"{kind}_orthogonal_{name}": Treatment.model_validate({"parts": twin.parts, **options})
        for kind, twin in (("frozen", _frozen("query", "key")), ("trained", _treated("query", "key")))
    }


LOW_RANK = Residual(rank=None, on=["query", "key"])
KEY_SHIFT = Shift(per="channel", on=["key"])
PER_HEAD = Scores(temperature=Temperature(kind="per_head"))

REPAIRS: dict[str, Treatment] = {
    # What frozen queries and keys lack, given back for few numbers; the trained twins have it too.
    **_frozen_and_trained("repaired", scores=PER_HEAD, repairs=Repairs(residual=LOW_RANK, shift=KEY_SHIFT)),
    # Each of it alone.
    **_frozen_and_trained("shift", repairs=Repairs(shift=KEY_SHIFT)),
    **_frozen_and_trained("temperature", scores=PER_HEAD),
    **_frozen_and_trained("residual", repairs=Repairs(residual=LOW_RANK)),
    **_frozen_and_trained("convolution", repairs=Repairs(convolution=Convolution(width=4))),
}
RIVALS: dict[str, Treatment] = {
    # Trained queries and keys that are small instead of frozen.
    f"narrow_query_key_{width}": Treatment(scores=Scores(query_key_width=width))
    for width in (4, 8, 16)
}
GPT_ARMS = STARTS_OF_QUERIES_AND_KEYS | WITHOUT_A_MATRIX | SCHEDULES | SINGLE_PARTS | WHOLE_LAYERS | REPAIRS | RIVALS

# For models that come with weights: stock fine-tuning, and what separates freezing from losing what was learnt.
PRETRAINED_ARMS: dict[str, Treatment] = {
    name: treatment.for_given_weights()
    for name, treatment in {
        "fine_tuned": _query_and_key("keep"),
        "fine_tuned_orthogonalised": _query_and_key("orthogonalised"),
        "frozen_pretrained": _query_and_key("keep", Never()),
        "frozen_orthogonalised": _query_and_key("orthogonalised", Never()),
    }.items()
}

GROUPS = {
    "Starts of queries and keys": STARTS_OF_QUERIES_AND_KEYS,
    "Queries and keys without a matrix": WITHOUT_A_MATRIX,
    "Schedules of queries and keys": SCHEDULES,
    "Parts": SINGLE_PARTS | WHOLE_LAYERS,
    "Repairs of queries and keys": REPAIRS,
    "Rivals": RIVALS,
    "Models that come with weights": PRETRAINED_ARMS,
}
ARMS = GPT_ARMS | PRETRAINED_ARMS


def canonical_name(name: str) -> str:
    known = ALIASES.get(name, name)
    if known in ARMS:
        return known
    raise UserError(f"arm: unknown name {name!r}{did_you_mean(name, [*ARMS, *ALIASES])} (`oelm arms` lists them)")


def arm(name: str, *, kind: str = "gpt") -> Treatment:
    """The treatment of a named arm, by any of its names, of a GPT or of an encoder, which comes with weights."""
    treatment = ARMS[canonical_name(name)]
    if kind == "encoder" and not treatment.governs_parts_alone:
        raise UserError(f"arm: {name} changes how scores are formed or repairs parts, which an encoder cannot have")
    return treatment.for_given_weights() if kind == "encoder" else treatment
