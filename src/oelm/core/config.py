"""What one run is: model, parts, training, seeds, data. Immutable, strict, self-validating.

What is declared may leave values to a rule or to the data; what is resolved is a type of its own that has them all.

Where and how a run executes (device, threads, precision) is another type, `Execution`, and cannot enter
the fingerprint. This module imports neither torch nor anything of ours that does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from oelm.core.options import problems_of_options
from oelm.core.parts import AS_GIVEN, BASELINE, ROLES, Part, Parts, problems_of, problems_of_given, problems_of_squares
from oelm.core.probes.probe import canonical, is_probe, probe_of, written
from oelm.core.repairs import NO_REPAIRS, Repairs, ResolvedRepairs
from oelm.core.scores import PLAIN_SCORES, Positions, ResolvedScores, Scores
from oelm.core.sections import MOST_DIGITS, Count, Positive, Section, Whole
from oelm.core.starts import STARTS
from oelm.core.trackers.table import TRACKERS

FORMAT_VERSION = 5
SEALED_SINCE = 3  # runs of this format and later ones end with a seal
MOST_RECORDED_HEADS = 1024  # whose scores fit into one line of metrics, as metric_records.py reads it
ALWAYS_TRAINED = Part()


class Model(Section):
    """The GPT: pre-norm, no bias in attention, tanh GELU."""

    FROM_DATA: ClassVar[tuple[str, ...]] = ("vocabulary",)  # what the data decides where a config does not

    vocabulary: Positive | None = Field(default=None, description="Size of the vocabulary; null: from the data.")
    seq_len: Positive = Field(default=512, description="Tokens per sequence.")
    d_model: Positive = Field(default=512, description="Width of the model.")
    num_layers: Annotated[Whole, Field(ge=1, le=10_000)] = Field(default=6, description="Transformer blocks.")
    num_heads: Positive = Field(default=8, description="Attention heads; must divide d_model.")
    d_ff: Positive | None = Field(default=None, description="Width of the feed-forward layer; null: 4 d_model.")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="Share of activations set to zero in training.")
    positions: Positions = Field(default="learned", description="How the model knows the order of the tokens.")
    tied: bool = Field(default=True, description="The output layer uses the matrix of the token embedding.")
    parts: Parts = BASELINE
    scores: Scores = PLAIN_SCORES
    repairs: Repairs = NO_REPAIRS

    @property
    def tokens_per_example(self) -> float:
        return self.seq_len

    @property
    def query_key_rows(self) -> int:
        """Of a query or key matrix."""
        return self.num_heads * (self.scores.query_key_width or self.d_model // self.num_heads)

    def part_at(self, role: str, layer: int | None) -> Part:
        """What holds for a role in a layer (None: outside the layers). What is added to the parts always moves."""
        if role not in ROLES:
            return ALWAYS_TRAINED
        part = self.parts.of(role)
        return part if part.holds_in(layer) else BASELINE.of(role)

    @model_validator(mode="after")
    def _consistent(self) -> Model:
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model {self.d_model} is not divisible by num_heads {self.num_heads}")
        problems = list(self.problems())
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def problems(self) -> Iterator[str]:
        """What of an arm a model of this size cannot have, a line each that begins with the key."""
        yield from problems_of(self.parts, num_heads=self.num_heads, num_layers=self.num_layers)
        yield from problems_of_options(self, self.parts)
        if self.scores.query_key_width not in (None, self.d_model // self.num_heads):
            why = f"scores.query_key_width is {self.scores.query_key_width}"
            yield from problems_of_squares(self.parts, ("query", "key"), why=why)


class Encoder(Section):
    """An encoder with a classification head, fine-tuned on sentences or pairs of them.

    Which encoder it is, its sizes and its weights, the data says: it was prepared with that encoder's tokenizer.
    Parts besides queries and keys start with the weights they come with.
    """

    FROM_DATA: ClassVar[tuple[str, ...]] = (
        "vocabulary", "positions", "token_types", "d_model", "num_layers", "num_heads", "d_ff", "labels", "seq_len",
        "mean_length",
    )  # fmt: skip

    kind: Literal["encoder"] = Field(default="encoder", description="Makes the model an encoder; without it, a GPT.")
    pretrained: bool = Field(default=True, description="false: the same sizes, with random weights.")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="Share of activations set to zero in training.")
    parts: Parts = AS_GIVEN
    vocabulary: Positive | None = Field(default=None, description="Size of the vocabulary; from the data.")
    positions: Positive | None = Field(default=None, description="Longest input of the encoder; from the data.")
    token_types: Count | None = Field(default=None, description="Number of token types; from the data.")
    d_model: Positive | None = Field(default=None, description="Width of the encoder; from the data.")
    num_layers: Positive | None = Field(default=None, description="Transformer blocks; from the data.")
    num_heads: Positive | None = Field(default=None, description="Attention heads; from the data.")
    d_ff: Positive | None = Field(default=None, description="Width of the feed-forward layer; from the data.")
    labels: Positive | None = Field(default=None, description="Number of classes; from the data.")
    seq_len: Positive | None = Field(default=None, description="Longest example, in tokens; from the data.")
    mean_length: float | None = Field(
        default=None, gt=0, description="Mean length of the training examples, in tokens; from the data."
    )

    @property
    def query_key_rows(self) -> int | None:
        return self.d_model

    @model_validator(mode="after")
    def _consistent(self) -> Encoder:
        for role, part in self.parts.items():
            given = STARTS[part.start].of_given_weights
            if ROLES[role].drawn_apart and given and not self.pretrained:
                raise ValueError(f"parts.{role}.start: cannot be {part.start}: pretrained is false")
        problems = list(problems_of_given(self.parts))
        if problems:
            raise ValueError("\n".join(problems))
        return self


def kind_of_model(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return "encoder" if kind == "encoder" else "gpt"


AnyModel = Annotated[Annotated[Model, Tag("gpt")] | Annotated[Encoder, Tag("encoder")], Discriminator(kind_of_model)]


class Training(Section):
    steps: Positive = Field(default=100_000, description="Total number of updates.")
    batch_size: Positive = Field(
        default=8, description="Sequences per update, of all processes together: more processes get fewer each."
    )
    learning_rate: float = Field(
        default=3e-4, gt=0, description="Peak learning rate; after warm-up it follows a cosine."
    )
    final_learning_rate_fraction: float = Field(
        default=0.1, ge=0, le=1, description="Final learning rate, as a fraction of the peak."
    )
    warmup_steps: Count | None = Field(
        default=None, description="Updates of linear warm-up, at most `steps`; null: min(2000, steps / 10)."
    )
    weight_decay: float = Field(default=0.1, ge=0, description="AdamW's weight decay, applied to matrices.")
    beta1: float = Field(default=0.9, ge=0, lt=1, description="AdamW's decay rate for the mean of the gradients.")
    beta2: float = Field(default=0.95, ge=0, lt=1, description="AdamW's decay rate for the mean of their squares.")
    epsilon: float = Field(default=1e-8, gt=0, description="AdamW's term added to the divisor.")
    gradient_clip: float | None = Field(
        default=1.0, gt=0, description="Largest gradient norm (clipping); null: no limit."
    )
    validation_split: Literal["tune", "val", "test"] = Field(
        default="val", description="Split used for validation; use tune to tune a setting."
    )
    validate_every: Positive | None = Field(
        default=None, description="Updates between validations; null: 20 times per run, at least every 1000 updates."
    )
    validation_cost: float = Field(
        default=0.1, gt=0, le=1, description="Limit on the arithmetic of validation, as a fraction of training's."
    )
    validation_sequences: Positive | None = Field(
        default=None, description="Sequences per validation of the curve; null: as many as the limit allows."
    )
    final_validation_sequences: Positive | None = Field(
        default=None, description="Sequences for the reported loss; null: half of what the limit allows."
    )
    # It changes no other number of a run. Left out of every dump, it is part of no identity and no comparison, and a
    # run stored without it is the same run; `written_out` of settings.py hands it on.
    head_scores: bool = Field(
        default=False, exclude=True, description="Record at every validation what each attention head looks at."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Training:
        if self.warmup_steps is not None and self.warmup_steps > self.steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} is more than steps {self.steps}")
        return self


class Seeds(Section):
    """Three apart: arms are paired on weights and data, and draw their projections from the third."""

    weights: Count = Field(default=0, description="Seed of all weights except the projections that an arm draws.")
    projections: Count = Field(default=0, description="Seed of the projections that an arm draws.")
    data: Count = Field(default=0, description="Seed of the order of the data.")


class Run(Section):
    """Everything that decides what a run computes. `arm` is a label: what it means is in model.parts."""

    arm: str = Field(default="trained", description="A named arm (`oelm arms`); chosen with --arm, not with --set.")
    model: AnyModel = Model()
    training: Training = Training()
    seeds: Seeds = Seeds()
    data: Annotated[str, BeforeValidator(written), AfterValidator(canonical)] = Field(
        default="data/stories", description="Folder of token files, made by `oelm prepare`, or probe:TASK; --data."
    )

    @model_validator(mode="after")
    def _fits_its_data_and_model(self) -> Run:
        if is_probe(self.data):
            if isinstance(self.model, Encoder):
                raise ValueError("data: probes are for a GPT; an encoder is fine-tuned on sentences")
            probe = probe_of(self.data)
            for key, theirs in (("seq_len", probe.length), ("vocabulary", probe.vocabulary)):
                ours = getattr(self.model, key)
                if ours is not None and ours != theirs:
                    option = "length" if key == "seq_len" else key
                    raise ValueError(f"model.{key}: must be {theirs}, the {option} of the probe, not {ours}")
        if not self.training.head_scores:
            return self
        if isinstance(self.model, Encoder):
            raise ValueError("training.head_scores: is for a GPT; the heads of an encoder are not scored")
        if self.model.num_layers * self.model.num_heads > MOST_RECORDED_HEADS:
            raise ValueError(f"training.head_scores: a record has room for {MOST_RECORDED_HEADS:,} heads at most")
        return self


OLDER_TRACKER = "tensorboard"


def _known_tracker(name: str) -> str:
    if name not in TRACKERS:
        raise ValueError(f"must be one of {', '.join(TRACKERS)}, not {name}")
    return name


def _as_list(value: Any) -> Any:
    """Of names; one alone, or several with commas between them, as --set writes them."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    is_of_names = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return tuple(dict.fromkeys(value)) if is_of_names else value


class Execution(Section):
    """Where and how a run executes. Recorded, compared between arms, never part of a run's identity."""

    device: str = Field(default="auto", description="cpu, cuda, cuda:1, ...; auto: a GPU if there is one.")
    precision: Literal["auto", "float32", "bfloat16", "float64"] = Field(
        default="auto", description="Precision of the arithmetic; auto: what suits the device."
    )
    compile: Literal["auto", "on", "off"] = Field(
        default="auto", description="Compile the blocks; auto: if it pays off."
    )
    threads: Positive | None = Field(default=None, description="CPU threads; null: chosen by torch.")
    micro_batch_size: Positive | None = Field(
        default=None, description="Sequences computed at once; null: depends on the model and the device."
    )
    deterministic: bool = Field(
        default=True,
        description="Use only kernels that give the same bits every time, so that a resumed run equals an "
        "uninterrupted one; false: on a GPU also faster ones, without that promise.",
    )
    tf32: bool = Field(
        default=False,
        description="On a GPU, multiply float32 matrices in TF32: faster, with 10 bits of mantissa instead of 23.",
    )
    checkpoint_every: Positive | None = Field(
        default=None, description="Updates between checkpoints; null: ten times per run, at least every 5000 updates."
    )
    keep_checkpoints: Positive = Field(default=2, description="Number of checkpoints to keep, the most recent ones.")
    log_every: Positive | None = Field(
        default=None, description="Updates between records of the loss; null: 200 times per run, at least every 100."
    )
    step_limit_seconds: float | None = Field(
        default=None,
        ge=1,
        le=1500,
        description="With several processes: how long one may keep the others waiting before they stop; null: ten "
        "minutes. A save gets more by its size.",
    )
    trackers: Annotated[
        tuple[Annotated[str, AfterValidator(_known_tracker), Field(json_schema_extra={"enum": list(TRACKERS)})], ...],
        BeforeValidator(_as_list),
    ] = Field(default=(), description="Other experiment trackers that the run also writes its metrics to.")

    @model_validator(mode="before")
    @classmethod
    def _older_key(cls, values: Any) -> Any:
        """Up to version 0.5 there was `tensorboard: true`."""
        if not isinstance(values, dict) or not isinstance(wanted := values.get(OLDER_TRACKER), bool):
            return values
        others = {key: value for key, value in values.items() if key != OLDER_TRACKER}
        named = _as_list(others.get("trackers", ()))
        if wanted and isinstance(named, tuple) and OLDER_TRACKER not in named:
            others["trackers"] = (*named, OLDER_TRACKER)
        return others


# What of it a step depends on.
STEP_EXECUTION = ("device", "precision", "compile", "threads", "micro_batch_size", "deterministic", "tf32")


class Settings(Section):
    """A config file: a run and how to execute it."""

    run: Run = Run()
    execution: Execution = Execution()


# ---- Defaults that depend on other values -------------------------------------------------------------------------

FORWARD_SHARE_OF_A_TRAINING_STEP = 1 / 3  # forward : backward = 1 : 2


def facts_of(model: AnyResolvedModel) -> dict[str, Any]:
    """What the data has said of a resolved model."""
    return {name: getattr(model, name) for name in model.FROM_DATA}


# A declared section may leave a value to a rule or to the data (None); in a resolved one each has its value. Names and
# order of the fields are those of the declared one, so that both are stored alike.


class ResolvedModel(Model):
    vocabulary: Positive
    d_ff: Positive
    scores: ResolvedScores
    repairs: ResolvedRepairs


class ResolvedEncoder(Encoder):
    vocabulary: Positive
    positions: Positive
    token_types: Count
    d_model: Positive
    num_layers: Positive
    num_heads: Positive
    d_ff: Positive
    labels: Positive
    seq_len: Positive
    mean_length: float

    @property
    def tokens_per_example(self) -> float:
        return self.mean_length

    @property
    def query_key_rows(self) -> int:
        return self.d_model

    def part_at(self, role: str, layer: int | None) -> Part:
        part = self.parts.of(role)
        return part if part.holds_in(layer) else AS_GIVEN.of(role)


AnyResolvedModel: TypeAlias = ResolvedModel | ResolvedEncoder


class ResolvedTraining(Training):
    warmup_steps: Count
    validate_every: Positive
    validation_sequences: Positive
    final_validation_sequences: Positive


class ResolvedRun(Run):
    """What can be computed, counted and identified: a GptRun or an EncoderRun."""

    model: Annotated[
        Annotated[ResolvedModel, Tag("gpt")] | Annotated[ResolvedEncoder, Tag("encoder")], Discriminator(kind_of_model)
    ]
    training: ResolvedTraining


class GptRun(ResolvedRun):
    model: ResolvedModel


class EncoderRun(ResolvedRun):
    model: ResolvedEncoder


class Unresolved(ValueError):
    """Values of a run that neither a rule nor the given facts decide."""

    def __init__(self, keys: list[str]) -> None:
        super().__init__(f"{', '.join(keys)}: not known without the data")
        self.keys = keys


def resolved(run: Run, facts: dict[str, Any] | None = None) -> ResolvedRun:
    """The same run with every None replaced by the value it stands for. `facts` is what the data says of the model."""
    known = as_far_as_known(run, facts)
    if isinstance(known, ResolvedRun):
        return known
    raise Unresolved(_without_value(known.model))


def resolved_model(model: Model) -> ResolvedModel:
    """A GPT's, where its vocabulary is known."""
    filled = _filled(model, _by_rule(model))
    if isinstance(filled, ResolvedModel):
        return filled
    raise Unresolved(_without_value(filled))


def as_far_as_known(run: Run, facts: dict[str, Any] | None = None) -> Run:
    """The same, but where the facts do not say all, what they do not say stays None: then it is no ResolvedRun."""
    given = {name: value for name, value in (facts or {}).items() if name in run.model.FROM_DATA}
    model = _filled(run.model, given | _by_rule(run.model))
    values = dict(run) | {"model": model, "training": resolved_training(run.training)}
    match model:
        case ResolvedModel():
            return GptRun.model_construct(**values)
        case ResolvedEncoder():
            return EncoderRun.model_construct(**values)
    return Run.model_construct(**values)


def _filled(model: Model | Encoder, values: dict[str, Any]) -> Model | Encoder:
    """With these values where it has none; a resolved one if it then has all."""
    filled = dict(model) | {name: value for name, value in values.items() if getattr(model, name) is None}
    if isinstance(model, Model):
        filled["scores"] = model.scores.resolved(d_model=model.d_model, num_heads=model.num_heads)
        filled["repairs"] = model.repairs.resolved(d_model=model.d_model)
    kind, resolved_kind = (Encoder, ResolvedEncoder) if isinstance(model, Encoder) else (Model, ResolvedModel)
    return (kind if None in filled.values() else resolved_kind).model_construct(**filled)


def _by_rule(model: Model | Encoder) -> dict[str, Any]:
    return {"d_ff": 4 * model.d_model} if isinstance(model, Model) else {}


def _without_value(model: Model | Encoder) -> list[str]:
    return [f"model.{name}" for name in model.FROM_DATA if getattr(model, name) is None]


def resolved_training(training: Training) -> ResolvedTraining:
    warmup_steps = training.warmup_steps
    if warmup_steps is None:
        warmup_steps = min(2000, training.steps // 10)
    affordable = int(training.validation_cost * training.steps * training.batch_size / FORWARD_SHARE_OF_A_TRAINING_STEP)
    affordable = min(affordable, 10**MOST_DIGITS - 1)  # or the config could not be read back
    final = training.final_validation_sequences or _in_whole_batches(affordable // 2, training.batch_size)
    for_the_curve = max(1, affordable - final)
    often = max(1, min(1000, training.steps // 20), -(-training.steps // for_the_curve))
    validate_every = training.validate_every or often
    sequences = for_the_curve // -(-training.steps // validate_every)
    filled = {
        "warmup_steps": warmup_steps,
        "validate_every": validate_every,
        "validation_sequences": training.validation_sequences or _in_whole_batches(sequences, training.batch_size),
        "final_validation_sequences": final,
    }
    return ResolvedTraining.model_construct(**dict(training) | filled)


def _in_whole_batches(sequences: int, batch_size: int) -> int:
    """A compiled model needs no graph of its own for a remainder."""
    return max(1, sequences // batch_size * batch_size or sequences)


# ---- Identity and storage -----------------------------------------------------------------------------------------


def fingerprint(run: ResolvedRun, *, data_digest: str) -> str:
    """Identity of a run: equal for equal computations, whatever the arm is called or where the data lies."""
    return stored_fingerprint(run.model_dump(mode="json"), data_digest=data_digest)


def stored_fingerprint(tree: dict[str, Any], *, data_digest: str) -> str:
    """The fingerprint that a run had when its config was stored, whatever its format has become since."""
    identity = {key: value for key, value in tree.items() if key not in ("format_version", "arm", "data")}
    identity["data_digest"] = data_digest
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def stored_form(run: ResolvedRun) -> dict[str, Any]:
    return {"format_version": FORMAT_VERSION, **run.model_dump(mode="json")}


def from_version_2(tree: dict[str, Any]) -> dict[str, Any]:
    """What a stored run of format 2 means today. It had four projections in `model.attention`, those of an encoder
    besides Q and K never counted; positions were learned, the output layer tied, scores plain, nothing repaired."""
    kind = kind_of_model(tree["model"])
    model = {key: value for key, value in tree["model"].items() if key != "attention"}
    model["parts"] = parts_of_attention(tree["model"]["attention"], kind)
    if kind != "encoder":
        scores = PLAIN_SCORES.resolved(d_model=model["d_model"], num_heads=model["num_heads"]).model_dump(mode="json")
        repairs = NO_REPAIRS.model_dump(mode="json")
        model |= {"positions": "learned", "tied": True, "scores": scores, "repairs": repairs}
    return {**tree, "model": model}


def parts_of_attention(attention: dict[str, Any], kind: str) -> dict[str, Any]:
    """Every part as `model.attention`, which it was called before version 4, says it for a model of this kind."""
    others = AS_GIVEN if kind == "encoder" else BASELINE
    return others.model_dump(mode="json") | counted_in_attention(attention, kind)


def counted_in_attention(attention: dict[str, Any], kind: str) -> dict[str, Any]:
    """What of `model.attention` ever meant something."""
    never = ("value", "output") if kind == "encoder" else ()
    return {role: part for role, part in attention.items() if role not in never}


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
    "probe": Run(
        model=Model(seq_len=64, d_model=64, num_layers=2, num_heads=4),
        training=Training(steps=2000, batch_size=64, learning_rate=1e-3),
        data="probe:recall",
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
