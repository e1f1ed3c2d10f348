"""Studies side by side, as the documents' table of BERT against GPT, with the documents' own two rows as claims."""

from __future__ import annotations

from collections.abc import Container, Iterator

from oelm.analysis.findings import Beside, Findings, PairedDifference
from oelm.reporting import numbers
from oelm.reporting.document import Block, Bullets, Heading, Paragraph, Table
from oelm.reporting.words import say
from oelm.study.declaration import Language

COLUMNS = (
    "source", "model_and_task", "measure", "from_baseline", "with_interval", "outcome", "ratio", "trainable_share",
)  # fmt: skip
AUDIT = ("beside.audit_bert", "beside.audit_gpt", "beside.audit_faster", "beside.audit_no_faster")


def beside(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    if not findings.beside:
        return
    yield Heading(say(language, "heading.beside"))
    lost = [row for row in findings.beside if row.problem is not None]
    if lost:
        yield Bullets([_problem(row, language) for row in lost], tone="warning")
    rows = [_row(row, language) for row in findings.beside if row.problem is None]
    header = [say(language, f"column.{name}") for name in COLUMNS]
    align = ["left"] * 6 + ["right"] * 2
    yield Table(say(language, "beside.table"), header, [*rows, *_claims(language)], align)
    yield Paragraph(say(language, "beside.caution"), tone="note")
    yield Bullets([say(language, code) for code in AUDIT], title=say(language, "beside.audit_title"))


def _problem(row: Beside, language: Language) -> str:
    return say(language, "beside.problem", study=row.study, problem=row.problem)


def _row(row: Beside, language: Language) -> list[str]:
    label = row.labels[row.treatment][0 if language == "en" else 1]
    sizes = {"layers": row.model.get("num_layers"), "width": row.model.get("d_model"), "data": row.data}
    measure = "accuracy" if row.classifies else "perplexity"
    ratio = row.ratio
    return [
        say(language, "beside.source", study=row.study, arm=label),
        say(language, "beside.encoder" if row.classifies else "beside.gpt", **sizes),
        say(language, f"beside.{measure}"),
        f"{_quality(row, row.baseline_quality)} → {_quality(row, row.treatment_quality)}",
        _difference(row, language),
        _outcomes(row, language),
        f"{numbers.ratio(ratio.middle)} {numbers.interval(ratio.low, ratio.high, numbers.ratio)}"
        if ratio
        else numbers.NONE,
        _share(row.trainable_share),
    ]


def _quality(row: Beside, value: float | None) -> str:
    return numbers.accuracy(value) if row.classifies else numbers.perplexity(numbers.perplexity_of(value))


def _difference(row: Beside, language: Language) -> str:
    difference = row.difference
    if difference is None or difference.mean is None:
        return numbers.NONE
    return say(language, "beside.seeds", difference=_shown(row, difference, language), seeds=len(difference.seeds))


def _shown(row: Beside, difference: PairedDifference, language: Language) -> str:
    low, high = difference.low, difference.high
    if row.classifies:
        middle = say(language, "unit.points", number=numbers.points(difference.mean))
        span = numbers.points_interval(low, high)
    else:
        middle = numbers.percent_change(difference.mean)
        span = numbers.interval(low, high, numbers.percent_change)
    return middle if low is None else f"{middle} {span}"


def _outcomes(row: Beside, language: Language) -> str:
    if not row.outcomes:
        return say(language, "beside.no_claim")
    return say(language, "list_semicolon").join(
        say(language, "beside.outcome", name=name, outcome=say(language, f"outcome.{outcome}"))
        for name, outcome in row.outcomes.items()
    )


def _share(value: float | None) -> str:
    return numbers.NONE if value is None else f"{100 * value:.1f} %"


def _claims(language: Language) -> Iterator[list[str]]:
    """The documents' numbers, as they state them; the share is counted from the sizes they give."""
    source = say(language, "beside.documents")
    gain = say(language, "unit.points", number="+1.08")
    yield [
        source, say(language, "beside.documents_bert"), say(language, "beside.accuracy"), "76.71 % → 77.79 %",
        say(language, "beside.one_seed", difference=gain), say(language, "beside.claimed_better"),
        say(language, "beside.claimed_faster"), numbers.NONE,
    ]  # fmt: skip
    yield [
        source, say(language, "beside.documents_gpt"), say(language, "beside.perplexity"), "4.27 → 4.69",
        say(language, "beside.one_seed", difference="+9.8 %"), say(language, "beside.claimed_worse"),
        say(language, "beside.claimed_no_faster"), "93.0 %",
    ]  # fmt: skip
