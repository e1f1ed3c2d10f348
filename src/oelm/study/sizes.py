"""The sizes of a study: what a value of a dial makes of a run. A row of DIALS is a whole dial.

A rule gives the settings that differ from those of the base, in proportion to it; whatever it does not name stays as it
is, so that all widths read the same tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oelm.core.accounting import totals
from oelm.core.config import Model, ResolvedRun, Run, as_far_as_known, resolved_training
from oelm.machine.errors import UserError
from oelm.study.declaration import SizedArm


@dataclass(frozen=True)
class Dial:
    name: str
    key: str  # the setting that it turns
    rule: Callable[[Run, int], dict[str, Any]]  # an arm at the base, and the value
    documentation: str  # the rule, for docs/studies_advanced.md


def _of_width(run: Run, width: int) -> dict[str, Any]:
    model = run.model
    if not isinstance(model, Model):
        raise UserError("is for a GPT; the sizes of an encoder come with its data")
    head_width = model.d_model // model.num_heads
    if width % head_width:
        raise UserError(
            f"{width} is not divisible into heads of {head_width} (base: d_model {model.d_model}, num_heads "
            f"{model.num_heads}); use multiples of {head_width}"
        )
    residual = model.repairs.residual.rank
    return {
        "model.d_model": width,
        "model.num_heads": width // head_width,
        "model.num_layers": _in_proportion(model.num_layers, width, model.d_model),
        **({} if model.d_ff is None else {"model.d_ff": _in_proportion(model.d_ff, width, model.d_model)}),
        **({"model.repairs.residual.rank": _in_proportion(residual, width, model.d_model)} if residual else {}),
    }


def _of_steps(run: Run, steps: int) -> dict[str, Any]:
    warmup = run.training.warmup_steps
    own = {} if warmup is None else {"training.warmup_steps": _in_proportion(warmup, steps, run.training.steps)}
    return {"training.steps": steps, **own}


def _in_proportion(value: int, part: int, whole: int) -> int:
    """Rounded half up, at least 1 of what there is any of."""
    return max(min(value, 1), (2 * value * part + whole) // (2 * whole))


DIALS: dict[str, Dial] = {
    dial.name: dial
    for dial in (
        Dial(
            "width",
            "model.d_model",
            _of_width,
            "`d_model`; heads stay as wide as in the base, so that there are more of them; depth, a stated `d_ff` and "
            "a stated rank of residuals grow in proportion, rounded; steps and batches stay as they are (equal tokens)",
        ),
        Dial(
            "steps",
            "training.steps",
            _of_steps,
            "`training.steps`, each a whole schedule; a stated warm-up grows in proportion; the model stays as it is",
        ),
    )
}
NAMED = "named"  # in place of a dial, of sizes that have names of their own


def computed(run: Run) -> str:
    """What a size makes of a run, as text: two sizes with the same one are one."""
    return run.model_copy(update={"training": resolved_training(run.training)}).model_dump_json(exclude={"arm"})


LEAST_FOR_A_LINE = 3  # sizes: through one or two there is always one
LEAST_FOR_A_FORECAST = 5
STAND_IN = {"vocabulary": 1024}  # where the data decides it: the same for all sizes


def not_ahead_of(run: Run, tried: list[Run]) -> str | None:
    """Why a line through the sizes tried says nothing of this one; None: it lies further along the line.

    The line is along parameters or, where all sizes have the same, training tokens. Parameters of sizes that come with
    the data are taken to be the same.
    """
    ours, *theirs = (_counted(each) for each in (run, *tried))
    varying = [len({each[place] for each in theirs}) > 1 for place in range(len(ours))]
    along, counted = varying.index(True) if True in varying else 0, ("parameters", "training tokens")
    if ours[along] <= max(each[along] for each in theirs):
        return "is not larger than the sizes tried"
    if len({each[along] for each in theirs}) < LEAST_FOR_A_FORECAST:
        return f"needs at least {LEAST_FOR_A_FORECAST} different numbers of {counted[along]} among the sizes tried"
    for place, what in enumerate(counted):
        if not varying[place] and ours[place] != theirs[0][place]:
            return f"has another number of {what} than all the sizes tried"
    return None


def unvarying(per: str, runs: list[Run]) -> str | None:
    """What all these sizes have the same number of, if a slope with every doubling of `per` has to divide by it."""
    parameters, tokens = zip(*map(_counted, runs), strict=True)
    same = {"parameters": len({*parameters}) == 1 != parameters[0], "training tokens": len({*tokens}) == 1}
    if per == "flops":
        return "training FLOPs" if all(same.values()) else None
    what = "parameters" if per == "parameters" else "training tokens"
    return what if same[what] else None


def _counted(run: Run) -> tuple[int, float]:
    """Parameters and training tokens; of sizes that come with the data, examples."""
    known, examples = as_far_as_known(run, STAND_IN), run.training.steps * run.training.batch_size
    if not isinstance(known, ResolvedRun):
        return 0, examples
    return totals(known.model).total, examples * known.model.tokens_per_example


def carried_from(arms: Mapping[str, SizedArm], arm: str, tuned: Container[str]) -> tuple[str, list[str]]:
    """The dial along which values are carried over to an arm, and the tuned arms that they come from."""
    own = arms[arm]
    for dial in own.dials:
        sources = [
            name for name, each in arms.items() if each.family == own.family and dial in each.dials and name in tuned
        ]
        if dial in DIALS and len(sources) >= LEAST_FOR_A_LINE:
            return dial, sources
    raise UserError(
        f"tuning.at: {own.family} is not tuned at {own.size}, and values are carried over along a dial, from at least "
        f"{LEAST_FOR_A_LINE} of its sizes"
    )


def cell_name(arm: str, size: str) -> str:
    """What the runs of an arm at a size are called."""
    return f"{arm}+{size}"


def documentation() -> Iterator[str]:
    """The table of docs/studies_advanced.md."""
    yield "| dial | what it changes |"
    yield "|---|---|"
    for dial in DIALS.values():
        yield f"| `{dial.name}` | {dial.documentation} |"
