"""What the interleaved bench says of two arms: the only source of statements about speed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from oelm.storage.files import Damaged
from oelm.study.bench import LEAST_BLOCKS, Bench, Ratio
from oelm.study.bench_fit import differences_text


@dataclass(frozen=True)
class Speed:
    """A ratio of step times, and why no claim can rest on it, if none can."""

    ratio: Ratio | None = None
    hindrance: str | None = None  # a reason of findings.REASONS
    facts: dict[str, Any] = field(default_factory=dict)


SpeedOf = Callable[[str, str], Speed]  # treatment, control


def speed(bench: Bench | Damaged | None, study: str, treatment: str, control: str) -> Speed:
    """Treatment over control. A ratio from too few undisturbed blocks is not even shown."""
    if isinstance(bench, Damaged):
        return Speed(hindrance="bench_damaged", facts={"line": str(bench)})
    if bench is None or not bench.has(treatment, control):
        return Speed(hindrance="no_bench")
    if differences := differences_text(bench, (treatment, control)):
        return Speed(hindrance="bench_other_config", facts={"differences": differences, "study": study})
    if bench.is_busy:
        facts = {"blocks": bench.blocks, "quiet": len(bench.quiet), "least": LEAST_BLOCKS}
        return Speed(hindrance="machine_busy", facts=facts)
    ratio = bench.ratio(treatment, control)
    if len(bench.quiet) < LEAST_BLOCKS:
        return Speed(ratio, "too_few_blocks", {"blocks": len(bench.quiet), "least": LEAST_BLOCKS})
    return Speed(ratio)


def bench_provenance(bench: Bench | Damaged | None) -> dict[str, Any] | None:
    """How the speed was measured, for whoever reads the ratios."""
    if not isinstance(bench, Bench):
        return None
    return {
        "baseline": bench.baseline,
        "control": bench.control,
        "blocks": bench.blocks,
        "undisturbed": len(bench.quiet),
        "busy": bench.is_busy,
        "other_config": sorted(bench.other_config),
        "fits": bench.seconds.keys() != bench.other_config.keys(),
        "rebuilt": bench.rebuilt,
        "created": bench.created,
    }
