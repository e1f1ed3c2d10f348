"""What one run is: model, attention specs, training, seeds, data. Frozen, strict, self-validating.

Where and how a run executes (device, threads, precision) is another type, `Execution`, and cannot enter
the fingerprint. This module imports neither torch nor anything of ours that does.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

FORMAT_VERSION = 2


def _whole_number(value: Any) -> Any:
    """YAML and --set write a thousand as 1000 or as 1e3; both are whole numbers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole_number)]
Positive = Annotated[Whole, Field(ge=1)]
Count = Annotated[Whole, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


# ---- When a projection moves ------------------------------------------------------------------------------------


class Always(Frozen):
    kind: Literal["always"] = "always"


class Never(Frozen):
    kind: Literal["never"] = "never"


class Every(Frozen):
    """Moves at updates N, 2N, 3N, ... and rests in between."""

    kind: Literal["every"] = "every"
    steps: Positive


class After(Frozen):
    """Rests until this fraction of training is over. Layer by layer: the top layer thaws first."""

    kind: Literal["after"] = "after"
    fraction: float = Field(gt=0, lt=1)
    order: Literal["together", "layer_by_layer"] = "together"


class Before(Frozen):
    """Moves until this fraction of training is over, then rests."""

    kind: Literal["before"] = "before"
    fraction: float = Field(gt=0, lt=1)


Moves = Annotated[Always | Never | Every | After | Before, Field(discriminator="kind")]

# Standard deviations: normal 0.02; scaled_normal 1/sqrt(d_in), the scale of an orthogonal start;
# residual_normal 0.02/sqrt(2 layers), GPT-2's start for what is added to the residual stream.
# For models that come with weights: keep them, or make each head's rows orthonormal within the space they span.
Start = Literal[
    "normal", "scaled_normal", "xavier", "orthogonal", "head_orthogonal", "residual_normal", "keep", "orthogonalised"
]
OF_GIVEN_WEIGHTS = ("keep", "orthogonalised")


class Projection(Frozen):
    """How one attention projection starts, and when it may move.

    `moves` holds for the first `share` of the heads (or of the layers); the rest always moves.
    """

    start: Start = "normal"
    gain: float = Field(default=1.0, gt=0)
    moves: Moves = Always()
    share: Share = 1.0
    share_of: Literal["heads", "layers"] = "heads"


class Attention(Frozen):
    query: Projection = Projection()
    key: Projection = Projection()
    value: Projection = Projection()
    output: Projection = Projection(start="residual_normal")


PROJECTIONS = ("query", "key", "value", "output")


def _covered_rows(projection: Projection, layer: int, d_model: int, num_layers: int, num_heads: int) -> int:
    if projection.share_of == "layers":
        return d_model if layer < round(projection.share * num_layers) else 0
    return round(projection.share * num_heads) * (d_model // num_heads)


class Model(Frozen):
    """The GPT: pre-norm, learned positions, tied embeddings, no bias in attention, tanh GELU."""

    FROM_DATA: ClassVar = ("vocabulary",)  # what the data decides where a config does not

    vocabulary: Positive | None = None  # None: as the data says
    seq_len: Positive = 512
    d_model: Positive = 512
    num_layers: Annotated[Whole, Field(ge=1, le=10_000)] = 6
    num_heads: Positive = 8
    d_ff: Positive | None = None  # None: 4 d_model
    dropout: float = Field(default=0.0, ge=0, lt=1)
    attention: Attention = Attention()

    @property
    def is_resolved(self) -> bool:
        return self.vocabulary is not None and self.d_ff is not None

    @property
    def tokens_per_example(self) -> float:
        return self.seq_len

    def resolved(self, facts: dict[str, Any]) -> Model:
        vocabulary = self.vocabulary or facts.get("vocabulary")
        return self.model_copy(update={"vocabulary": vocabulary, "d_ff": self.d_ff or 4 * self.d_model})

    def covered_rows(self, projection: Projection, layer: int) -> int:
        """How many of a projection's d_model rows its `moves` holds for, in this layer; the others always move."""
        return _covered_rows(projection, layer, self.d_model, self.num_layers, self.num_heads)

    @model_validator(mode="after")
    def _consistent(self) -> Model:
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model {self.d_model} is not divisible by num_heads {self.num_heads}")
        for name in PROJECTIONS:
            self._check_projection(name, getattr(self.attention, name))
        return self

    def _check_projection(self, name: str, projection: Projection) -> None:
        if projection.start in OF_GIVEN_WEIGHTS:
            raise ValueError(f"attention.{name} cannot start {projection.start}: this model comes with no weights")
        if name == "output" and projection.start == "head_orthogonal":
            raise ValueError("attention.output cannot start head_orthogonal: its rows belong to no head")
        if projection.share == 1:
            return
        if name == "output" and projection.share_of == "heads":
            raise ValueError("attention.output cannot be frozen by heads: its rows belong to no head; use layers")
        whole = self.num_heads if projection.share_of == "heads" else self.num_layers
        if not float(projection.share * whole).is_integer():
            raise ValueError(
                f"attention.{name}.share {projection.share} of {whole} {projection.share_of} is not a whole number"
            )


class Encoder(Frozen):
    """An encoder with a classification head, fine-tuned on sentences or pairs of them.

    Which encoder it is, its sizes and its weights, the data says: it was prepared with that encoder's tokenizer.
    `attention` is applied to queries and keys only.
    """

    FROM_DATA: ClassVar = (
        "vocabulary", "positions", "token_types", "d_model", "num_layers", "num_heads", "d_ff", "labels", "seq_len",
        "mean_length",
    )  # fmt: skip

    kind: Literal["encoder"] = "encoder"
    pretrained: bool = True  # False: the same sizes, started at random
    dropout: float = Field(default=0.1, ge=0, lt=1)
    attention: Attention = Attention(query=Projection(start="keep"), key=Projection(start="keep"))
    vocabulary: Positive | None = None
    positions: Positive | None = None
    token_types: Count | None = None
    d_model: Positive | None = None
    num_layers: Positive | None = None
    num_heads: Positive | None = None
    d_ff: Positive | None = None
    labels: Positive | None = None
    seq_len: Positive | None = None  # longest example, in tokens
    mean_length: float | None = Field(default=None, gt=0)  # of the training examples

    @property
    def is_resolved(self) -> bool:
        return all(getattr(self, name) is not None for name in self.FROM_DATA)

    @property
    def tokens_per_example(self) -> float:
        assert self.mean_length is not None
        return self.mean_length

    def covered_rows(self, projection: Projection, layer: int) -> int:
        """As Model.covered_rows; for queries and keys alone."""
        assert self.is_resolved
        return _covered_rows(projection, layer, self.d_model, self.num_layers, self.num_heads)

    def resolved(self, facts: dict[str, Any]) -> Encoder:
        missing = {name: facts.get(name) for name in self.FROM_DATA if getattr(self, name) is None}
        return self.model_copy(update=missing)

    @model_validator(mode="after")
    def _consistent(self) -> Encoder:
        starts = {self.attention.query.start, self.attention.key.start}
        if not self.pretrained and starts & set(OF_GIVEN_WEIGHTS):
            raise ValueError(f"attention cannot start {', '.join(sorted(starts))}: pretrained is false")
        return self


def kind_of_model(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return "encoder" if kind == "encoder" else "gpt"


AnyModel = Annotated[Annotated[Model, Tag("gpt")] | Annotated[Encoder, Tag("encoder")], Discriminator(kind_of_model)]


class Training(Frozen):
    steps: Positive = 100_000
    batch_size: Positive = 8  # sequences in one update, over all processes
    learning_rate: float = Field(default=3e-4, gt=0)
    final_learning_rate_fraction: float = Field(default=0.1, ge=0, le=1)
    warmup_steps: Count | None = None  # None: min(2000, steps / 10)
    weight_decay: float = Field(default=0.1, ge=0)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)
    gradient_clip: float | None = Field(default=1.0, gt=0)
    validation_split: Literal["tune", "val", "test"] = "val"
    validate_every: Positive | None = None  # None: 20 times a run, at least every 1000 steps
    validation_cost: float = Field(default=0.1, gt=0, le=1)  # bound on validation's arithmetic, as a part of training's
    validation_sequences: Positive | None = None  # None: as many as the bound allows
    final_validation_sequences: Positive | None = None  # of the reported loss; None: half of what the bound allows

    @model_validator(mode="after")
    def _consistent(self) -> Training:
        if self.warmup_steps is not None and self.warmup_steps > self.steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} is more than steps {self.steps}")
        return self


class Seeds(Frozen):
    """Three apart: arms are paired on weights and data, and draw their projections from the third."""

    weights: Count = 0
    projections: Count = 0
    data: Count = 0


class Run(Frozen):
    """Everything that decides what a run computes. `arm` is a label: what it means is in model.attention."""

    arm: str = "trained"
    model: AnyModel = Model()
    training: Training = Training()
    seeds: Seeds = Seeds()
    data: str = "data/stories"


class Execution(Frozen):
    """Where and how a run executes. Recorded, compared between arms, never part of a run's identity."""

    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    threads: Positive | None = None
    micro_batch_size: Positive | None = None  # None: by the size of the model and the device
    checkpoint_every: Positive | None = None  # None: ten times a run, at least every 5000 steps
    keep_checkpoints: Positive = 2
    log_every: Positive | None = None  # None: 200 times a run, at least every 100 steps
    tensorboard: bool = False


class Settings(Frozen):
    """A config file: a run and how to execute it."""

    run: Run = Run()
    execution: Execution = Execution()


# ---- Defaults that depend on other values -------------------------------------------------------------------------

FORWARD_SHARE_OF_A_TRAINING_STEP = 1 / 3  # forward : backward = 1 : 2


def facts_of(model: AnyModel) -> dict[str, Any]:
    """What the data has said of a resolved model."""
    return {name: getattr(model, name) for name in model.FROM_DATA}


def resolved(run: Run, facts: dict[str, Any] | None = None) -> Run:
    """The same run with every None replaced by the value it stands for. `facts` is what the data says of the model."""
    model = run.model.resolved(facts or {})
    return run.model_copy(update={"model": model, "training": _resolved_training(run.training)})


def _resolved_training(training: Training) -> Training:
    warmup_steps = training.warmup_steps
    if warmup_steps is None:
        warmup_steps = min(2000, training.steps // 10)
    affordable = int(training.validation_cost * training.steps * training.batch_size / FORWARD_SHARE_OF_A_TRAINING_STEP)
    final = training.final_validation_sequences or _in_whole_batches(affordable // 2, training.batch_size)
    for_the_curve = max(1, affordable - final)
    often = max(1, min(1000, training.steps // 20), -(-training.steps // for_the_curve))
    validate_every = training.validate_every or often
    sequences = for_the_curve // -(-training.steps // validate_every)
    return training.model_copy(
        update={
            "warmup_steps": warmup_steps,
            "validate_every": validate_every,
            "validation_sequences": training.validation_sequences or _in_whole_batches(sequences, training.batch_size),
            "final_validation_sequences": final,
        }
    )


def _in_whole_batches(sequences: int, batch_size: int) -> int:
    """A compiled model needs no graph of its own for a remainder."""
    return max(1, sequences // batch_size * batch_size or sequences)


# ---- Identity and storage -----------------------------------------------------------------------------------------


def fingerprint(run: Run, *, data_digest: str) -> str:
    """Identity of a resolved run: equal for equal computations, whatever the arm is called or where the data lies."""
    identity = run.model_dump(mode="json", exclude={"arm", "data"}) | {"data_digest": data_digest}
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def stored_form(run: Run) -> dict[str, Any]:
    return {"format_version": FORMAT_VERSION, **run.model_dump(mode="json")}


def _from_version_1(tree: dict[str, Any]) -> dict[str, Any]:
    """Before version 2 the reported loss was the last of the curve's."""
    training = tree["training"]
    return {**tree, "training": {**training, "final_validation_sequences": training["validation_sequences"]}}


# Version -> what turns a stored run of it into the next version: a new field gets the value of the old behaviour.
MIGRATIONS = {1: _from_version_1}


# ---- Presets ------------------------------------------------------------------------------------------------------

EVERYTHING = 1_000_000_000  # more than any split holds

PRESETS: dict[str, Run] = {
    "tiny": Run(
        model=Model(seq_len=128, d_model=128, num_layers=4, num_heads=4),
        training=Training(steps=400, batch_size=16, learning_rate=2e-3),
    ),
    "small": Run(
        model=Model(seq_len=256, d_model=256, num_layers=6, num_heads=8),
        training=Training(steps=4000, batch_size=16, learning_rate=1e-3),
    ),
    "medium-512": Run(
        model=Model(vocabulary=50257, seq_len=512, d_model=512, num_layers=6, num_heads=8, d_ff=2048),
        data="data/tinystories",
    ),
    "gpt2-124m": Run(
        model=Model(vocabulary=50257, seq_len=1024, d_model=768, num_layers=12, num_heads=12, d_ff=3072),
        training=Training(batch_size=480, learning_rate=6e-4),
        data="data/openwebtext",
    ),
    "fine-tuning": Run(
        arm="fine_tuned",
        model=Encoder(),
        training=Training(
            steps=1000,
            batch_size=32,
            learning_rate=5e-5,
            final_learning_rate_fraction=0.0,
            weight_decay=0.01,
            beta2=0.999,
            validation_sequences=512,
            final_validation_sequences=EVERYTHING,
        ),
        data="data/xnli-en",
    ),
}
