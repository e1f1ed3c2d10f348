"""The section on scale: how the difference from the baseline changes with size and training, and what that is worth."""

from __future__ import annotations

from collections.abc import Container, Iterator

from oelm.analysis.findings import Findings, Scale
from oelm.show import numbers, quality
from oelm.show.article import Block, Heading, Paragraph, Picture, Table
from oelm.show.tables import floor_sentence, label_of, table
from oelm.show.words import say, say_of
from oelm.study.declaration import Language
from oelm.study.scaled import dials_of, family_of, sized_arms
from oelm.study.sizes import LEAST_FOR_A_FORECAST, LEAST_FOR_A_LINE


def scale(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    """Where the study has sizes."""
    found, study = findings.scale, findings.study
    if found is None:
        return
    baseline = label_of(findings, family_of(study, study.baseline), language)
    yield Heading(say(language, "heading.scale"))
    yield Paragraph(say_of(study, language, "scale.sentence", baseline=baseline))
    if "scale" in figures:
        caption = say_of(study, language, "caption.scale", baseline=baseline)
        yield Picture("scale", caption + floor_sentence(findings, language))
    yield from _slopes(findings, found, baseline, language)
    yield _by_size(findings, found, baseline, language)
    yield from _laws(findings, found, language)
    yield from _multipliers(findings, found, baseline, language)
    yield from _forecasts(findings, found, baseline, language)


def _slopes(findings: Findings, found: Scale, baseline: str, language: Language) -> Iterator[Block]:
    measure, rows = findings.study.measure, []
    few: dict[tuple[str, int], list[str]] = {}  # by dial and the number of complete sizes: arms
    for trend in found.trends:
        arm, dial = label_of(findings, trend.treatment, language), say(language, f"dial.{trend.dial}")
        if not trend.slopes:
            few.setdefault((dial, sum(point.is_whole for point in trend.points)), []).append(arm)
        for per, slope in trend.slopes.items():
            change = quality.difference_with_unit(measure, slope.slope, language)
            cells = [change, quality.interval(measure, slope), f"{slope.sizes}/{len(trend.points)}"]
            rows.append([arm, dial, say(language, f"per.{per}"), *cells])
    for (dial, sizes), arms in few.items():
        facts = {"arms": say(language, "list_semicolon").join(arms), "dial": dial, "sizes": sizes}
        yield Paragraph(say(language, "scale.too_few", **facts, least=LEAST_FOR_A_LINE), tone="note")
    if rows:
        columns = ("arm", "dial", "doubled", "slope", "interval", "sizes")
        yield table(findings, language, columns, rows, say(language, "scale.slopes", baseline=baseline), words=3)


def _by_size(findings: Findings, found: Scale, baseline: str, language: Language) -> Table:
    measure, sized = findings.study.measure, sized_arms(findings.study)
    rows = []
    for name, arm in found.arms.items():
        of_size = [each for other, each in found.arms.items() if sized[other].size == sized[name].size]
        in_column = [each.quality.mean for each in of_size]
        difference = arm.quality.difference
        shown = quality.difference(measure, difference.mean if difference else None)
        rows.append([
            sized[name].size, label_of(findings, sized[name].family, language), numbers.whole(arm.total),
            numbers.whole(arm.tokens), numbers.flops(arm.flops), numbers.learning_rate(arm.learning_rate),
            f"{len(arm.losses)}/{len(findings.study.seeds)}",
            quality.value(measure, arm.quality.mean, column=in_column),
            quality.with_interval(shown, measure, difference) if difference else shown,
        ])  # fmt: skip
    columns = ("size", "arm", "total", "tokens", "flops", "learning_rate", "seeds", "value", "shown_difference")
    caption = say(language, "scale.by_size", baseline=baseline) + floor_sentence(findings, language)
    return table(findings, language, columns, rows, caption, words=2)


def _laws(findings: Findings, found: Scale, language: Language) -> Iterator[Block]:
    rows = [
        [
            label_of(findings, law.arm, language),
            say(language, f"dial.{law.dial}"),
            exponent(law.exponent),
            numbers.interval(law.low, law.high),
            f"{len(law.flops)}/{len(dials_of(findings.study)[law.dial])}",
        ]
        for law in found.laws
        if law.exponent is not None
    ]
    if rows:
        columns = ("arm", "dial", "exponent", "interval", "sizes")
        yield table(findings, language, columns, rows, say(language, "scale.laws"), words=2)


def exponent(value: float | None) -> str:
    return numbers.NONE if value is None else f"{value:.4f}".replace("-", "−")


def _multipliers(findings: Findings, found: Scale, baseline: str, language: Language) -> Iterator[Block]:
    rows = []
    for each in found.multipliers:
        mark = " *" if each.is_beyond else ""
        low, high = (None if end is None else end * each.flops_ratio for end in (each.low, each.high))
        rows.append([
            label_of(findings, each.treatment, language), numbers.whole(each.tokens),
            numbers.times(each.ratio) + mark, numbers.interval(each.low, each.high, numbers.times),
            numbers.times(each.ratio * each.flops_ratio), numbers.interval(low, high, numbers.times), str(each.budgets),
        ])  # fmt: skip
    if rows:
        columns = ("arm", "budget", "times_tokens", "interval", "times_flops", "interval", "budgets")
        yield table(findings, language, columns, rows, say(language, "scale.multipliers", baseline=baseline))
        if any(each.is_beyond for each in found.multipliers):
            yield Paragraph(say(language, "scale.multipliers_beyond"), tone="note")


def _forecasts(findings: Findings, found: Scale, baseline: str, language: Language) -> Iterator[Block]:
    measure, rows = findings.study.measure, []
    few: dict[tuple[str, int], list[str]] = {}  # by size and the number of complete ones: arms
    wide: dict[str, list[str]] = {}  # by size
    for each in found.forecasts:
        arm, predicted = label_of(findings, each.treatment, language), each.predicted
        if predicted is None:
            few.setdefault((each.size, each.sizes), []).append(arm)
            continue
        if not quality.is_telling(measure, predicted):
            wide.setdefault(each.size, []).append(arm)
            continue
        cells = [
            numbers.whole(each.sizes), quality.difference_with_unit(measure, predicted.middle, language),
            quality.interval(measure, predicted),
        ]  # fmt: skip
        check = [numbers.NONE] * 3
        if each.left_out is not None:
            covered = say(language, "scale.covered" if each.is_covered else "scale.not_covered")
            check = [
                each.left_out.size, quality.interval(measure, each.left_out),
                f"{quality.difference(measure, each.observed)} ({covered})",
            ]  # fmt: skip
        rows.append([arm, predicted.size, numbers.spoken(round(predicted.counts["parameters"])), *cells, *check])
    for (size, sizes), arms in few.items():
        facts = {"arms": say(language, "list_semicolon").join(arms), "size": size, "sizes": sizes}
        yield Paragraph(say(language, "scale.no_forecast", **facts, least=LEAST_FOR_A_FORECAST), tone="note")
    for size, arms in wide.items():
        facts = {"arms": say(language, "list_semicolon").join(arms), "size": size}
        yield Paragraph(
            say(language, "scale.wide_forecast", **facts, widest=f"{quality.WIDEST_FORECAST:g}"), tone="note"
        )
    if rows:
        data = findings.arms[findings.study.baseline].data
        yield Paragraph(say(language, "scale.extrapolation", data=data), tone="warning")
        columns = ("arm", "forecast_size", "total", "sizes", "predicted", "prediction_interval", "left_out",
                   "prediction_interval", "observed")  # fmt: skip
        yield table(findings, language, columns, rows, say(language, "scale.forecasts", baseline=baseline), words=2)


def carried_lines(findings: Findings, language: Language) -> Iterator[str]:
    """Of arms whose values were tuned at other sizes: what they are, and by which law."""
    comma = say(language, "list_comma")
    for arm, choice in findings.plan.choices.items():
        if choice.carried is not None and choice.best is not None:
            sized = sized_arms(findings.study)
            exponents = comma.join(
                f"{key} {value:+.2f}".replace("-", "−") for key, value in choice.carried.exponents.items()
            )
            facts = {
                "arm": f"{label_of(findings, sized[arm].family, language)} ({sized[arm].size})",
                "values": comma.join(f"{key} {numbers.learning_rate(value)}" for key, value in choice.values.items()),
                "sizes": comma.join(sized[source].size for source in choice.carried.sources),
                "dial": say(language, f"dial.{choice.carried.dial}"),
                "exponents": exponents,
            }
            yield say(language, "tuning.carried", **facts)
