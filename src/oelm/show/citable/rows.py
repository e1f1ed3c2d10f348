"""What a macro is made of, and numbers that several things have: an interval, a difference, a ratio of times."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from oelm.analysis.findings import PairedDifference
from oelm.core.measures import Measure
from oelm.show import numbers, quality
from oelm.study.bench import Ratio

Row = tuple[str, str, str]  # measure, text, meaning


def camel(*words: str) -> str:
    first, *others = [part for word in words for part in word.split("_")]
    return first + "".join(each[:1].upper() + each[1:] for each in others)


def with_interval(
    name: str, values: tuple[float | None, float | None, float | None], show: Callable[[float | None], str], what: str
) -> Iterator[Row]:
    """A middle and the two ends of its interval."""
    middle, low, high = values
    yield name, show(middle), what
    yield from ends(name, (low, high), show, what)


def ends(
    name: str, interval: tuple[float | None, float | None], show: Callable[[float | None], str], what: str
) -> Iterator[Row]:
    low, high = interval
    yield f"{name}Low", show(low), f"{what}, lower end of the 95 % interval"
    yield f"{name}High", show(high), f"{what}, upper end of the 95 % interval"


def of_difference(measure: Measure, difference: PairedDifference | None, what: str) -> Iterator[Row]:
    """With its interval; of a logarithm also as it is compared."""
    if difference is None or difference.mean is None:
        return
    unit = "in per cent" if measure.scale.key == "percent" else "in percentage points"
    values = difference.mean, *measure.ends(difference.low, difference.high)
    shown = f"difference in {measure.name[0]} {what}, {unit}, mean over pairs"
    yield from with_interval("difference", values, lambda each: quality.difference(measure, each), shown)
    if measure.scale.is_logarithmic:
        compared = f"difference in loss {what}, in nats, mean over pairs"
        yield from with_interval("logDifference", values, lambda each: quality.logarithm(measure, each), compared)
    yield "pairs", str(len(difference.seeds)), f"pairs of runs of a difference {what}"


def of_ratio(ratio: Ratio | None, what: str, *, name: str = "timeRatio") -> Iterator[Row]:
    if ratio is None:
        return
    yield from with_interval(
        name, (ratio.middle, ratio.low, ratio.high), numbers.ratio, f"time of a step {what}, a ratio"
    )
