"""What a measure compares, as a reader wants it: values, differences, intervals and margins, by the measure's scale.

Differences are of costs as the analysis has them; here they get the sign and the unit of what a reader is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from oelm.analysis.findings import PairedDifference, Predicted, Slope
from oelm.core.floors import Floor
from oelm.core.measures import Measure
from oelm.show import numbers
from oelm.show.words import say, say_of
from oelm.study.declaration import Language, Study

Interval = PairedDifference | Slope | Predicted  # of costs


@dataclass(frozen=True)
class Format:
    """How the numbers of a scale are written."""

    value: Callable[..., str]  # of a shown value; `column` as in numbers
    difference: Callable[[float], str]
    margin: Callable[[float], str]
    has_unit: bool  # per cent is part of the number; points are a word of a language
    drawn: Callable[[float], float]  # a shown value on the axis of a figure
    label: Callable[[float], str]  # of a drawn value


def _share(value: float, column: Iterable[float | None] = ()) -> str:
    """As exact in every column."""
    return numbers.share(value)


FORMATS: dict[str, Format] = {
    "percent": Format(
        value=numbers.perplexity,
        difference=numbers.percent,
        margin=numbers.plain_percent,
        has_unit=False,
        drawn=float,
        label=numbers.perplexity,
    ),
    "points": Format(
        value=_share,
        difference=numbers.points,
        margin="{:.4g}".format,
        has_unit=True,
        drawn=lambda share: 100 * share,
        label="{:.2f}".format,
    ),
}


def floor(study: Study, found: Floor | None, language: Language, *, difficulty: int | None = None) -> str:
    """What is reached without having learnt anything, and with having learnt little."""
    if found is None:
        return say(language, "floor.unknown")
    nothing, little = found.learnt_nothing, found.little(difficulty)
    measure, in_column = study.measure, [nothing, little]
    said = value(measure, nothing, column=in_column)
    if little is None:
        return say_of(study, language, "floor.one", value=said)
    return say_of(study, language, "floor.two", value=said, more=value(measure, little, column=in_column))


def value(
    measure: Measure, compared: float | None, *, spread: float | None = None, column: Iterable[float | None] = ()
) -> str:
    """Of a value as it is compared, with its standard deviation if one is given. `column`: the others in its column."""
    if compared is None:
        return numbers.NONE
    scale = measure.scale
    in_column = [None if each is None else scale.shown(each) for each in column]
    write = partial(FORMATS[scale.key].value, column=in_column)
    middle = scale.shown(compared)
    if spread is None:
        return write(middle)
    deviation = middle * spread if scale.is_logarithmic else spread  # of a logarithm, to first order
    return f"{write(middle)} ± {write(deviation)}"


def drawn(measure: Measure, compared: float) -> float:
    return FORMATS[measure.scale.key].drawn(measure.scale.shown(compared))


def drawn_label(measure: Measure, drawn_value: float) -> str:
    return FORMATS[measure.scale.key].label(drawn_value)


def difference(measure: Measure, of_costs: float | None) -> str:
    if of_costs is None:
        return numbers.NONE
    return FORMATS[measure.scale.key].difference(measure.shown_difference(of_costs))


def shown_with_unit(measure: Measure, shown: float, language: Language) -> str:
    """Of a difference that is already as a reader is shown it."""
    return _with_unit(measure, FORMATS[measure.scale.key].difference(shown), language)


def difference_with_unit(measure: Measure, of_costs: float | None, language: Language) -> str:
    if of_costs is None:
        return numbers.NONE
    return shown_with_unit(measure, measure.shown_difference(of_costs), language)


def in_direction(measure: Measure, of_costs: float, *, is_cost: bool) -> str:
    """A difference of costs as a reader is shown it, above zero in the direction that is named: a cost, or a gain."""
    shown = measure.scale.shown_difference(of_costs)
    return numbers.plain(shown if is_cost else -shown)


def amount(measure: Measure, number: str, language: Language) -> str:
    """Such a number with its unit."""
    return in_points(language, number) if FORMATS[measure.scale.key].has_unit else f"{number} %"


def allowance(measure: Measure, of_costs: float, language: Language) -> str:
    """What a chosen rate may cost."""
    return amount(measure, in_direction(measure, of_costs, is_cost=True), language)


def logarithm(measure: Measure, of_costs: float | None) -> str:
    """On a logarithmic scale, the difference as it is compared."""
    return numbers.NONE if of_costs is None else numbers.nats(measure.gain(of_costs))


def ends(
    measure: Measure, low: float | None, high: float | None, *, show: Callable[[float], float] | None = None
) -> tuple[float | None, float | None]:
    """Of an interval of costs, as a reader is shown them. Where higher is better they change places."""
    show = measure.shown_difference if show is None else show
    first, last = measure.ends(low, high)
    return None if first is None else show(first), None if last is None else show(last)


Show = Callable[[Measure, float | None], str]


def interval(measure: Measure, of_costs: Interval, show: Show = difference) -> str:
    """Where higher is better the ends change places."""
    return numbers.interval(*measure.ends(of_costs.low, of_costs.high), partial(show, measure))


WIDEST_FORECAST = 10.0  # per cent, or points: a wider interval says nothing that one would act on


def is_telling(measure: Measure, predicted: Predicted) -> bool:
    """Whether a forecast is shown."""
    low, high = (measure.shown_difference(end) for end in (predicted.low, predicted.high))
    return abs(high - low) <= WIDEST_FORECAST


def with_interval(middle: str, measure: Measure, of_costs: PairedDifference, show: Show = difference) -> str:
    """A mean that is written already, and its interval where there is one."""
    return middle if of_costs.low is None else f"{middle} {interval(measure, of_costs, show)}"


def margin(measure: Measure, stated: float | None, language: Language) -> str:
    if stated is None:
        return numbers.NONE
    return _with_unit(measure, FORMATS[measure.scale.key].margin(stated), language)


def _with_unit(measure: Measure, number: str, language: Language) -> str:
    return in_points(language, number) if FORMATS[measure.scale.key].has_unit else number


def in_points(language: Language, number: str) -> str:
    """A number, signed or not, of percentage points."""
    return say(language, "points.one" if number == "1" else "points.many", number=number)
