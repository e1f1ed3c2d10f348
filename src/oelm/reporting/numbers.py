"""Numbers as a reader wants them: units, signs, a sensible number of digits. The same in every language and format."""

from __future__ import annotations

import math
from collections.abc import Iterable

NONE = "–"
_SHORT = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
_FLOPS = ((1e21, "ZFLOP"), (1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP"))
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def whole(count: float | None) -> str:
    return NONE if count is None else f"{count:,.0f}"


def short(count: float | None) -> str:
    """44.9M, 2.05K."""
    return NONE if count is None else _scaled(count, _SHORT, "")


def flops(count: float | None) -> str:
    return NONE if count is None else _scaled(count, _FLOPS, "FLOP", gap=" ")


def memory(count: float | None) -> str:
    return NONE if count is None else _scaled(count, _BYTES, "B", gap=" ")


def _scaled(value: float, units: Iterable[tuple[float, str]], smallest: str, *, gap: str = "") -> str:
    for size, unit in units:
        if abs(value) >= size:
            return f"{_three_digits(value / size)}{gap}{unit}"
    return f"{value:,.0f}{gap}{smallest}".rstrip()


def _three_digits(value: float) -> str:
    """Three significant digits without an exponent."""
    decimals = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{decimals}f}"


def loss(nats: float | None) -> str:
    return NONE if nats is None else "∞" if math.isinf(nats) else f"{nats:.4f}"


def perplexity(value: float | None) -> str:
    if value is None:
        return NONE
    if math.isinf(value):
        return "∞"
    return f"{value:,.{3 if value < 100 else 1 if value < 10_000 else 0}f}"


def perplexity_of(nats: float | None) -> float | None:
    """e^loss, as the arithmetic mean of the logarithm has it; infinite where a float has no room."""
    if nats is None:
        return None
    return math.exp(nats) if nats < 700 else math.inf


def percent_of(nats: float) -> float:
    """A difference of losses as a change of perplexity."""
    return 100 * math.expm1(min(nats, 700))


def nats(difference: float | None) -> str:
    return NONE if difference is None else _signed(difference, 4)


def percent(value: float | None, *, decimals: int = 2) -> str:
    return NONE if value is None else f"{_signed(value, decimals)} %"


def percent_change(difference: float | None) -> str:
    """The same, from a difference in nats."""
    return NONE if difference is None else percent(percent_of(difference))


def plain_percent(value: float | None) -> str:
    """Without a sign: a margin, a share."""
    return NONE if value is None else f"{value:.4g} %"


def accuracy(share: float | None) -> str:
    return NONE if share is None else f"{100 * share:.2f} %"


def points(error: float | None) -> str:
    """A difference of error rates as percentage points of accuracy: fewer errors are a gain."""
    return NONE if error is None else _signed(-100 * error, 2)


def points_interval(low: float | None, high: float | None) -> str:
    """Of a difference of error rates; the ends change places."""
    return interval(high, low, points)


def interval(low: float | None, high: float | None, show=nats) -> str:
    return NONE if low is None or high is None else f"[{show(low)}, {show(high)}]"


def _signed(value: float, decimals: int) -> str:
    text = f"{abs(value):.{decimals}f}"
    sign = "" if float(text) == 0 else "−" if value < 0 else "+"
    return sign + text


def probability(p: float | None) -> str:
    return NONE if p is None else "< 0.0001" if p < 0.0001 else f"{p:.4f}" if p < 0.1 else f"{p:.3f}"


def ratio(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def learning_rate(value: float | None) -> str:
    """3e-4 rather than 0.0003: the way configs write it."""
    if value is None:
        return NONE
    if value == 0 or 0.01 <= abs(value) < 10_000:
        return f"{value:g}"
    mantissa, _, exponent = f"{value:e}".partition("e")
    return f"{float(mantissa):.4g}e{int(exponent)}"


def seconds(value: float | None) -> str:
    """A short time, of a step."""
    if value is None:
        return NONE
    return f"{value * 1000:.3g} ms" if value < 0.1 else f"{value:.3g} s"


def duration(value: float | None) -> str:
    """A long time, of a run or a study."""
    if value is None:
        return NONE
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes:02d} min"


def digest(text: str | None) -> str:
    """Enough of a digest to recognise it; the whole stands in analysis_results.json."""
    return NONE if not text else text[:12]
