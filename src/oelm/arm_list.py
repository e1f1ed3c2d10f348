"""The named arms as `oelm arms` shows them, counted at the sizes of a preset. Without torch."""

from __future__ import annotations

from collections.abc import Iterator

from oelm.accounting import parts as counted_parts
from oelm.accounting import totals
from oelm.aliases import ALIASES
from oelm.arm_words import described, described_part
from oelm.arms import ARMS, GROUPS, PRETRAINED_ARMS, canonical_name
from oelm.config import Model, ResolvedModel, resolved_model
from oelm.errors import UserError
from oelm.settings import DEFAULT_PRESET, preset_named
from oelm.treatment.moves import Always
from oelm.treatment.parts import AS_GIVEN, BASELINE, ROLES, Parts, problems_of

STORIES_VOCABULARY = 1024  # of the embedded corpus, for presets that leave it to the data
UNKNOWN_SIZES = "an encoder's sizes come with its data, so nothing is counted here"


def list_lines(preset: str | None = None) -> Iterator[str]:
    """Every arm in its group: its name, what is trained of the model's parameters, what it does."""
    model, heading = _model_at(preset or DEFAULT_PRESET)
    width = max(map(len, ARMS))
    yield f"per cent: parameters that are trained, at {heading}"
    for group, members in GROUPS.items():
        yield ""
        yield f"{group}:"
        for name, treatment in members.items():
            yield f"  {name:{width}}  {_share(name, model):>7}  {described(treatment.parts)}{_aliases(name)}"


def arm_lines(name: str, preset: str | None = None) -> Iterator[str]:
    """One arm: the parts in which it differs from the baseline, and its parameters by part."""
    known = canonical_name(name)
    parts = ARMS[known].parts
    model, heading = _model_at(preset or DEFAULT_PRESET)
    yield f"{known}{_aliases(known)}"
    others = AS_GIVEN if known in PRETRAINED_ARMS else BASELINE
    treated = [role for role, part in parts.items() if part != others.of(role)]
    width = max(len(role.words[0]) for role in ROLES.values())
    for role in treated:
        yield f"  {ROLES[role].words[0]:{width}}  {described_part(parts.of(role))}"
    yield "  every other part: " + (
        "as it was pretrained" if known in PRETRAINED_ARMS else "as in the baseline, trained"
    )
    for role in treated:
        if ROLES[role].note and not isinstance(parts.of(role).moves, Always):
            yield f"  {ROLES[role].note}"
    yield ""
    if known in PRETRAINED_ARMS:
        yield UNKNOWN_SIZES
        return
    yield f"parameters at {heading}:"
    yield from _counts(_with(model, parts, known))


def _counts(model: ResolvedModel) -> Iterator[str]:
    counted = list(counted_parts(model))
    rows = [
        (ROLES[role].words[0], [part for part in counted if part.role == role])
        for role in ROLES
        if any(part.role == role for part in counted)
    ]
    rows.append(("all", counted))
    width = max(len(words) for words, _ in rows)
    has_implied = any(part.implied for part in counted)
    if has_implied:
        yield "  (implied: entries of matrices that are stored nowhere; they are in no total)"
    columns = ("total", "trained", "frozen", "implied")[: 3 + has_implied]
    yield f"  {'':{width}}" + "".join(f"  {column:>13}" for column in columns)
    for words, parts in rows:
        total, trained = sum(part.total for part in parts), sum(part.trainable for part in parts)
        numbers = f"{total:13,}  {trained:13,}  {total - trained:13,}"
        if has_implied:
            numbers += f"  {sum(part.implied for part in parts):13,}"
        yield f"  {words:{width}}  {numbers}  {100 * trained / total if total else 0:6.1f} % trained"


def _model_at(preset: str) -> tuple[ResolvedModel, str]:
    """The GPT of a preset, and what it is called in a heading."""
    model = preset_named(preset).model
    if not isinstance(model, Model):
        raise UserError(f"--preset {preset}: {UNKNOWN_SIZES}; choose a preset of a GPT")
    sizes = model.model_copy(update={"vocabulary": model.vocabulary or STORIES_VOCABULARY})
    return resolved_model(sizes), f"preset {preset} (vocabulary {sizes.vocabulary:,})"


def _with(model: ResolvedModel, parts: Parts, name: str) -> ResolvedModel:
    problems = list(problems_of(parts, num_heads=model.num_heads, num_layers=model.num_layers))
    if problems:
        raise UserError("\n".join(f"arms {name}: {problem}" for problem in problems))
    return model.model_copy(update={"parts": parts})


def _share(name: str, model: ResolvedModel) -> str:
    if name in PRETRAINED_ARMS:
        return "-"
    counted = totals(_with(model, ARMS[name].parts, name))
    return f"{100 * counted.trainable / counted.total:.1f} %"


def _aliases(name: str) -> str:
    also = [alias for alias, target in ALIASES.items() if target == name]
    return f"  (also {', '.join(also)})" if also else ""
