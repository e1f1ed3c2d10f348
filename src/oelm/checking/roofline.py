"""`oelm check --roofline`: how long a step could take on a card, computed from data sheets, measured nowhere. No torch.

A step is its products at a share of the card's peak, then whatever has to pass through its memory at the full
bandwidth: weights, gradients and moments for the optimizer, activations written and read once each way. Validation,
launches, the host and communication are not in it, so small models take longer than this says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from oelm.accounting import step_work, training_flops_per_token
from oelm.checking.cards import CARDS, Card
from oelm.config import GptRun, ResolvedModel, Run, Unresolved, resolved
from oelm.durations import duration
from oelm.errors import UserError
from oelm.settings import load_settings
from oelm.study.declaration import Study
from oelm.study.one_run import draws_of, settings_for
from oelm.study.plan import planned
from oelm.study.shelf import Shelf

PRESETS = ("small", "medium-512", "gpt2-124m")
SHARE_OF_PEAK = 0.5  # of the products: what large matrices reach in practice, where nothing else is in the way
PASSES = 4  # over what is kept: written and read in the forward pass, read and written in the backward pass
KEPT_BYTES = 40  # of a layer's width for each token, in bfloat16 (footprint.py counts them one by one)
VOCABULARY = 50257  # of presets that leave it to the data
CARDS_OF_A_STUDY = 4


@dataclass(frozen=True)
class Expected:
    """One step on one card."""

    product_seconds: float
    memory_seconds: float
    tokens: int

    @property
    def seconds(self) -> float:
        return self.product_seconds + self.memory_seconds

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def share_of_peak(self) -> float:
        return SHARE_OF_PEAK * self.product_seconds / self.seconds


def expected(run: GptRun, card: Card) -> Expected:
    tokens = run.training.batch_size * run.model.seq_len
    flops, work = tokens * training_flops_per_token(run.model), step_work(run)
    moved = work["optimizer"] + work["memory"] + PASSES * tokens * _kept(run.model)
    return Expected(flops / (SHARE_OF_PEAK * card.bfloat16_flops), moved / card.bytes_per_second, tokens)


def _kept(model: ResolvedModel) -> int:
    """Bytes of a token that are kept for the backward pass, its logits included."""
    return model.num_layers * KEPT_BYTES * model.d_model + 2 * model.vocabulary


def _gpt(run: Run) -> GptRun:
    try:
        known = resolved(run, {} if run.model.vocabulary else {"vocabulary": VOCABULARY})
    except Unresolved as error:
        raise UserError(f"--roofline: only for a GPT ({error})") from error
    if not isinstance(known, GptRun):
        raise UserError("--roofline: only for a GPT, whose sizes are known without its data")
    return known


# ---- In lines ------------------------------------------------------------------------------------------------------


def roofline_lines(study: Study | None) -> Iterator[str]:
    yield "computed from data sheets, not measured: bfloat16, compiled"
    yield (
        f"assumed: products at {SHARE_OF_PEAK:.0%} of the dense peak; {PASSES} passes over what is kept, and the "
        "passes over weights, gradients and moments, at full bandwidth; nothing overlaps; validation, launches, "
        "the host and communication are not counted"
    )
    for card in CARDS:
        peak, bandwidth = card.bfloat16_flops / 1e12, card.bytes_per_second / 1e9
        yield f"{card.name}: {peak:,.0f} TFLOPS dense bfloat16, {bandwidth:,.0f} GB/s ({card.source})"
    yield ""
    yield from _of_presets() if study is None else _of_study(study)


def _of_presets() -> Iterator[str]:
    titles = f"{'tokens/step':>11} {'ms/step':>9} {'tokens/s':>10} {'of peak':>8} {'whole run':>13}"
    yield f"{'preset':12} {'card':14} {titles}"
    for preset in PRESETS:
        run = _gpt(load_settings(preset=preset).run)
        for card in CARDS:
            found = expected(run, card)
            yield (
                f"{preset:12} {card.name:14} {found.tokens:>11,} {1000 * found.seconds:>9,.1f} "
                f"{found.tokens_per_second:>10,.0f} {found.share_of_peak:>8.0%} "
                f"{duration(run.training.steps * found.seconds):>13}"
            )


def _of_study(study: Study) -> Iterator[str]:
    """Tuning, then the final runs, each on one card, four at a time."""
    stages = {"tuning": _tuning(study), "final": _final(study)}
    yield f"{study.name}: {len(stages['tuning'])} tuning and {len(stages['final'])} final runs, one card each"
    for card in CARDS:
        seconds = sum(_together(runs, card) for runs in stages.values())
        yield f"{CARDS_OF_A_STUDY} x {card.name}: {duration(seconds)}"


def _tuning(study: Study) -> list[GptRun]:
    return [_gpt(run.run) for run in planned(study, Shelf(Path("no runs"))).tuning]


def _final(study: Study) -> list[GptRun]:
    return [
        run
        for arm in study.arms
        for run in [_gpt(settings_for(study, arm, seed=study.seeds[0]).run)]
        for _ in range(len(study.seeds) * draws_of(study, arm))
    ]


def _together(runs: list[GptRun], card: Card) -> float:
    """Until all are done: never before the longest one."""
    seconds = [run.training.steps * expected(run, card).seconds for run in runs]
    return max([sum(seconds) / CARDS_OF_A_STUDY, *seconds], default=0.0)
