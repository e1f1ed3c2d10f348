"""Numbers of arms at all of their sizes."""

from __future__ import annotations

from collections.abc import Iterator

from oelm.analysis.findings import Forecast, Scale, Slope
from oelm.core.measures import Measure
from oelm.show import numbers, quality
from oelm.show.citable.rows import Row, ends, with_interval
from oelm.show.macro_names import spelled, spelled_out
from oelm.show.scale import exponent


def rows(measure: Measure, scale: Scale) -> Iterator[tuple[str, Row]]:
    """With the arm that each is of."""
    for trend in scale.trends:
        for per, slope in trend.slopes.items():
            name, where = f"Over{spelled(str(trend.dial))}Per{per.capitalize()}", f", over {trend.dial}"
            for row in of_slope(measure, slope, per, name=f"slope{name}", where=where):
                yield trend.treatment, row
            yield trend.treatment, (f"sizes{name}", str(slope.sizes), f"sizes that the slope rests on{where}")
    for law in scale.laws:
        name, what = f"exponentOver{spelled(law.dial)}", f"exponent of the loss against training FLOPs, over {law.dial}"
        yield law.arm, (name, exponent(law.exponent), what)
        for row in ends(name, (law.low, law.high), numbers.nats, what):
            yield law.arm, row
    for each in scale.multipliers:
        budget = f"At{spelled_out(f'{each.tokens:.0f}')}"
        for count, ratio in (("Tokens", 1.0), ("Flops", each.flops_ratio)):
            what = f"times the {count.lower()} for the loss of the baseline after {each.tokens:,.0f} tokens"
            what += ", an extrapolation" if each.is_beyond else ""
            low, high = (None if end is None else end * ratio for end in (each.low, each.high))
            values = each.ratio * ratio, low, high
            for row in with_interval(f"times{count}{budget}", values, numbers.times, what):
                yield each.treatment, row
        yield each.treatment, (f"budgets{budget}", str(each.budgets), "budgets that it rests on")
    for forecast in scale.forecasts:
        for row in _forecast(measure, forecast):
            yield forecast.treatment, row


def of_slope(measure: Measure, slope: Slope, per: str, *, name: str = "slope", where: str = "") -> Iterator[Row]:
    values = slope.slope, *measure.ends(slope.low, slope.high)
    what = f"change of the difference with every doubling of {per}{where}"
    yield from with_interval(name, values, lambda each: quality.difference(measure, each), what)


def _forecast(measure: Measure, forecast: Forecast) -> Iterator[Row]:
    def shown(of_costs: float | None) -> str:
        return quality.difference(measure, of_costs)

    predicted, left_out, at = forecast.predicted, forecast.left_out, f"At{spelled(forecast.size)}"
    if predicted is None or not quality.is_telling(measure, predicted):
        return
    values = predicted.middle, *measure.ends(predicted.low, predicted.high)
    what = f"forecast of the difference from the baseline at {forecast.size}"
    yield from with_interval(f"forecast{at}", values, shown, what)
    yield f"forecastSizes{at}", numbers.whole(forecast.sizes), f"sizes that the {what} rests on"
    count = numbers.spoken(round(predicted.counts["parameters"]))
    yield f"forecastParameters{at}", count, f"parameters at {forecast.size}"
    if left_out is not None:
        check = f"the same at {left_out.size}, left out of the line"
        yield from ends(f"checked{at}", measure.ends(left_out.low, left_out.high), shown, check)
        yield f"observed{at}", shown(forecast.observed), f"difference that was observed at {left_out.size}"
