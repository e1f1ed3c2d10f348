"""Numbers as a reader wants them: units, signs, a sensible number of digits. The same in every language and format.

A column of a table has one unit and one number of decimals: `column` holds its values, and the largest decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from oelm.machine import durations

NONE = "–"
_SHORT = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
_FLOPS = ((1e21, "ZFLOP"), (1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"))
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def whole(count: float | None) -> str:
    return NONE if count is None else f"{count:,.0f}"


def to_half(count: float) -> str:
    """A median of whole numbers: 387, 387.5."""
    return f"{count:,.{0 if count == int(count) else 1}f}"


def short(count: float | None) -> str:
    """44.9M, 2.05K."""
    return NONE if count is None else _scaled(count, _SHORT, "")


def spoken(count: int) -> str:
    """As one says it: 1.3M, 0.6M, 410M, 123K; below ten thousand whole."""
    if count < 10_000:
        return whole(count)
    size, unit = next((size, unit) for size, unit in _SHORT if count >= size / 2)
    return f"{count / size:,.{1 if count < 99.95 * size else 0}f}{unit}"


def score(share: float) -> str:
    """Of a head: a share of its attention."""
    return f"{share:.2f}"


Column = Iterable[float | None]


def flops(count: float | None, *, column: Column = ()) -> str:
    return NONE if count is None else _scaled(count, _FLOPS, "FLOP", gap=" ", column=column)


def memory(count: float | None, *, column: Column = ()) -> str:
    return NONE if count is None else _scaled(count, _BYTES, "B", gap=" ", column=column)


def _scaled(
    value: float, units: Iterable[tuple[float, str]], smallest: str, *, gap: str = "", column: Column = ()
) -> str:
    most = _largest(value, column)
    for size, unit in units:
        if most >= size:
            return f"{value / size:,.{_decimals(most / size)}f}{gap}{unit}"
    return f"{value:,.0f}{gap}{smallest}".rstrip()


def _largest(value: float, column: Column) -> float:
    return max((abs(each) for each in (value, *column) if each is not None and math.isfinite(each)), default=0.0)


def _decimals(value: float) -> int:
    """That show three significant digits without an exponent."""
    return max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0


def loss(nats: float | None) -> str:
    return NONE if nats is None else "∞" if math.isinf(nats) else f"{nats:.4f}"


def perplexity(value: float | None, *, column: Column = ()) -> str:
    if value is None:
        return NONE
    if math.isinf(value):
        return "∞"
    most = _largest(value, column)
    return f"{value:,.{3 if most < 100 else 1 if most < 10_000 else 0}f}"


def nats(difference: float | None) -> str:
    return NONE if difference is None else _signed(difference, 4)


def percent(value: float | None, *, decimals: int = 2) -> str:
    return NONE if value is None else f"{_signed(value, decimals)} %"


def plain_percent(value: float | None) -> str:
    """Without a sign: a margin, a share."""
    return NONE if value is None else f"{value:.4g} %"


def share(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.2f} %"


def points(value: float | None) -> str:
    """Percentage points: of a difference, so with a sign."""
    return NONE if value is None else _signed(value, 2)


def plain(value: float) -> str:
    """Of per cent or points, in a direction that words name: no sign above zero."""
    return _signed(value, 2).removeprefix("+")


def interval(low: float | None, high: float | None, show: Callable[[float | None], str] = nats) -> str:
    return NONE if low is None or high is None else f"[{show(low)}, {show(high)}]"


def _signed(value: float, decimals: int) -> str:
    text = "∞" if math.isinf(value) else f"{abs(value):.{decimals}f}"
    sign = "" if text != "∞" and float(text) == 0 else "−" if value < 0 else "+"
    return sign + text


def probability(p: float | None) -> str:
    return NONE if p is None else "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def ratio(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def times(value: float | None) -> str:
    """How many times as much."""
    if value is None:
        return NONE
    return "∞" if math.isinf(value) else f"{value:.2f}×" if value < 100 else f"{value:,.0f}×"


def learning_rate(value: float | None) -> str:
    """3e-4 rather than 0.0003: the way configs write it."""
    if value is None:
        return NONE
    if value == 0 or 0.01 <= abs(value) < 10_000:
        return f"{value:g}"
    mantissa, _, exponent = f"{value:e}".partition("e")
    return f"{float(mantissa):.4g}e{int(exponent)}"


def seconds(value: float | None, *, column: Column = ()) -> str:
    """A short time, of a step."""
    if value is None:
        return NONE
    most = _largest(value, column)
    size, unit = (1000, "ms") if most < 0.1 else (1, "s")
    return f"{value * size:.{_decimals(most * size)}f} {unit}"


def duration(value: float | None) -> str:
    """A long time, of a run or a study."""
    return NONE if value is None else durations.duration(value)


def digest(text: str | None) -> str:
    """Enough of a digest to recognise it; the whole stands in analysis_results.json."""
    return NONE if not text else text[:12]
