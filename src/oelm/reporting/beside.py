"""Studies side by side. Where classifiers are among them it is the documents' table of BERT against GPT, with the
documents' own two rows as claims and what an audit says of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

from oelm.analysis.findings import Beside, Findings, PairedDifference
from oelm.reporting import numbers
from oelm.reporting.document import Align, Block, Bullets, Heading, Paragraph, Table
from oelm.reporting.words import in_points, say
from oelm.study.declaration import Language

COLUMNS = (
    "source", "model_and_task", "from_baseline", "number", "seeds", "outcome", "ratio", "trainable_share",
)  # fmt: skip
AUDIT = ("beside.audit_bert", "beside.audit_gpt", "beside.audit_faster", "beside.audit_no_faster")


def beside(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    if not findings.beside:
        return
    bert_and_gpt = any(row.classifies for row in findings.beside)
    yield Heading(say(language, "heading.bert_and_gpt" if bert_and_gpt else "heading.beside"))
    lost = [row for row in findings.beside if row.problem is not None]
    if lost:
        yield Bullets([_problem(row, language) for row in lost], tone="warning")
    rows = [_row(row, language) for row in findings.beside if row.problem is None]
    header = [say(language, f"column.{name}") for name in COLUMNS]
    align: list[Align] = ["left", "left", "left", "right", "right", "left", "right", "right"]
    claims = _claims(language) if bert_and_gpt else []
    yield Table(say(language, "beside.table"), header, [*rows, *claims], align)
    yield Paragraph(say(language, "beside.caution"), tone="note")
    if bert_and_gpt:
        yield Paragraph(say(language, "beside.documents_rows"))
        yield Bullets([say(language, code) for code in AUDIT], title=say(language, "beside.audit_title"))


def _problem(row: Beside, language: Language) -> str:
    return say(language, "beside.problem", study=row.study, problem=row.problem)


def _row(row: Beside, language: Language) -> list[str]:
    label = row.label[("en", "zh").index(language)]
    sizes = {"layers": row.model.get("num_layers"), "width": row.model.get("d_model"), "data": row.data}
    measure = "accuracy" if row.classifies else "perplexity"
    values = {"baseline": _quality(row, row.baseline_quality), "frozen": _quality(row, row.treatment_quality)}
    ratio = row.ratio
    return [
        say(language, "beside.source", study=row.study, arm=label),
        say(language, "beside.encoder" if row.classifies else "beside.gpt", **sizes),
        say(language, f"beside.{measure}", **values),
        _difference(row, row.difference, language),
        str(len(row.difference.seeds)) if row.difference else numbers.NONE,
        _outcomes(row, language),
        f"{numbers.ratio(ratio.middle)} {numbers.interval(ratio.low, ratio.high, numbers.ratio)}"
        if ratio
        else numbers.NONE,
        _share(row.trainable_share),
    ]


def _quality(row: Beside, value: float | None) -> str:
    return numbers.accuracy(value) if row.classifies else numbers.perplexity(numbers.perplexity_of(value))


def _difference(row: Beside, difference: PairedDifference | None, language: Language) -> str:
    if difference is None or difference.mean is None:
        return numbers.NONE
    low, high = difference.low, difference.high
    if row.classifies:
        middle = in_points(language, numbers.points(difference.mean))
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
    gain = in_points(language, "+1.08")
    yield [
        source, say(language, "beside.documents_bert"),
        say(language, "beside.accuracy", baseline="76.71 %", frozen="77.79 %"),
        gain, "1", say(language, "beside.claimed_better"),
        say(language, "beside.claimed_faster"), numbers.NONE,
    ]  # fmt: skip
    yield [
        source, say(language, "beside.documents_gpt"),
        say(language, "beside.perplexity", baseline="4.27", frozen="4.69"),
        "+9.8 %", "1", say(language, "beside.claimed_worse"),
        say(language, "beside.claimed_no_faster"), "93.0 %",
    ]  # fmt: skip
