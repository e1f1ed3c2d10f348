"""The named arms as `oelm arms` shows them, counted at the sizes of a preset. Without torch."""

from __future__ import annotations

from collections.abc import Iterator

from oelm.core.accounting import parts as counted_parts
from oelm.core.accounting import totals
from oelm.core.aliases import ALIASES
from oelm.core.arm_words import described, described_part
from oelm.core.arms import ARMS, GROUPS, PRETRAINED_ARMS, Treatment, canonical_name
from oelm.core.config import Model, ResolvedModel, resolved_model
from oelm.core.moves import Always
from oelm.core.options import ADDITIONS, in_use
from oelm.core.parts import ALL_ROLES, AS_GIVEN, BASELINE, ROLES
from oelm.core.settings import DEFAULT_PRESET, preset_named
from oelm.machine.errors import UserError

STORIES_VOCABULARY = 1024  # of the embedded corpus, for presets that leave it to the data
UNKNOWN_SIZES = "an encoder's sizes come with its data, so nothing is counted here"


def list_lines(preset: str | None = None) -> Iterator[str]:
    """Every arm in its group: its name, what of it is trained, what it does."""
    model, heading = _model_at(preset or DEFAULT_PRESET)
    width = max(map(len, ARMS))
    yield f"at {heading}"
    yield "  Q/K  trained numbers of queries, keys and what is added, in per cent of the baseline's queries and keys"
    yield "  all  trained parameters, in per cent of all that the arm has"
    for group, members in GROUPS.items():
        yield ""
        yield f"{group}:"
        yield f"  {'':{width}}  {'Q/K':>7}  {'all':>7}"
        for name, treatment in members.items():
            known = treatment if name in PRETRAINED_ARMS else _with(model, treatment)
            if isinstance(known, Treatment):
                shares = f"{'-':>7}  {'-':>7}"
            elif problem := next(known.problems(), None):
                shares = f"not at this size ({problem})"
            else:
                counted = totals(known)
                shares = f"{_share_of_queries_and_keys(known):>7}  {_percent(counted.trainable, counted.total):>7}"
            yield f"  {name:{width}}  {shares}  {described(known)}{_aliases(name)}"


def arm_lines(name: str, preset: str | None = None) -> Iterator[str]:
    """One arm: the parts and options in which it differs from the baseline, and its parameters by part."""
    known = canonical_name(name)
    treatment = ARMS[known]
    model, heading = _model_at(preset or DEFAULT_PRESET)
    yield f"{known}{_aliases(known)}"
    others = AS_GIVEN if known in PRETRAINED_ARMS else BASELINE
    treated = [role for role, part in treatment.parts.items() if part != others.of(role)]
    lines = [(ROLES[role].words[0], described_part(treatment.parts.of(role))) for role in treated]
    sized = _with(model, treatment)
    lines += [(option.words[0], option.said(facts)) for option, facts in in_use(sized)]
    width = max(len(words) for words, _ in [*lines, ("", "")])
    for words, text in lines:
        yield f"  {words:{width}}  {text}"
    others_are = "as it was pretrained" if known in PRETRAINED_ARMS else "as in the baseline, trained"
    yield f"  every {'other part' if treated else 'part'}: {others_are}"
    for role in treated:
        note = ROLES[role].note(sized)
        if note and not isinstance(treatment.parts.of(role).moves, Always):
            yield f"  {note}"
    yield ""
    if known in PRETRAINED_ARMS:
        yield UNKNOWN_SIZES
        return
    problems = list(sized.problems())
    if problems:
        raise UserError("\n".join(f"arms {known}: {problem}" for problem in problems))
    yield f"parameters at {heading}:"
    yield from _counts(sized)


def _counts(model: ResolvedModel) -> Iterator[str]:
    counted = list(counted_parts(model))
    words = {name: role.words[0] for name, role in ALL_ROLES.items()}
    words |= {name: option.words[0] for name, option in ADDITIONS.items()}
    rows = [(words[role], [part for part in counted if part.role == role]) for role in words]
    rows = [*((name, parts) for name, parts in rows if parts), ("all", counted)]
    width = max(len(name) for name, _ in rows)
    has_implied = any(part.implied for part in counted)
    if has_implied:
        yield "  (implied: entries of matrices that are stored nowhere; they are in no total)"
    columns = ("total", "trained", "frozen", "implied")[: 3 + has_implied]
    yield f"  {'':{width}}" + "".join(f"  {column:>13}" for column in columns)
    for name, parts in rows:
        total, trained = sum(part.total for part in parts), sum(part.trainable for part in parts)
        numbers = f"{total:13,}  {trained:13,}  {total - trained:13,}"
        if has_implied:
            numbers += f"  {sum(part.implied for part in parts):13,}"
        yield f"  {name:{width}}  {numbers}  {100 * trained / total if total else 0:6.1f} % trained"
    share = _share_of_queries_and_keys(model)
    yield f"  queries, keys and what is added: trained numbers are {share} of the baseline's queries and keys"


def _model_at(preset: str) -> tuple[ResolvedModel, str]:
    """The GPT of a preset, and what it is called in a heading."""
    model = preset_named(preset).model
    if not isinstance(model, Model):
        raise UserError(f"--preset {preset}: {UNKNOWN_SIZES}; choose a preset of a GPT")
    sizes = model.model_copy(update={"vocabulary": model.vocabulary or STORIES_VOCABULARY})
    return resolved_model(sizes), f"preset {preset} (vocabulary {sizes.vocabulary:,})"


def _with(model: ResolvedModel, treatment: Treatment) -> ResolvedModel:
    """The model as an arm has it, whether it can have it or not."""
    options = {
        "scores": treatment.scores.resolved(d_model=model.d_model, num_heads=model.num_heads),
        "repairs": treatment.repairs.resolved(d_model=model.d_model),
    }
    return model.model_copy(update={"parts": treatment.parts, **options})


def _share_of_queries_and_keys(model: ResolvedModel) -> str:
    trained = sum(
        part.trainable for part in counted_parts(model) if part.role in ("query", "key") or part.role in ADDITIONS
    )
    return _percent(trained, 2 * model.num_layers * model.d_model**2)


def _percent(part: int, whole: int) -> str:
    percent = 100 * part / whole
    if 0 < percent < 0.01:
        return "<0.01 %"
    return f"{percent:.2f} %" if 0 < percent < 10 else f"{percent:.1f} %"


def _aliases(name: str) -> str:
    also = [alias for alias, target in ALIASES.items() if target == name]
    return f"  (also {', '.join(also)})" if also else ""
