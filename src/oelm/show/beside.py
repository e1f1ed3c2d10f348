"""Studies side by side, and below them the claims of others that the study's file quotes."""

from __future__ import annotations

from collections.abc import Container, Iterator

from oelm.analysis.findings import Beside, Findings, PairedDifference
from oelm.core.measures import MEASURES, Measure
from oelm.show import numbers, quality
from oelm.show.article import Align, Block, Bullets, Heading, Paragraph, Table
from oelm.show.tables import scope_line
from oelm.show.words import in_words, say
from oelm.study.declaration import Claim, Language, in_language

COLUMNS = (
    "source", "model_and_task", "from_baseline", "number", "seeds", "outcome", "ratio", "trainable_share",
)  # fmt: skip


def beside(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    if not findings.beside:
        return
    claims = findings.study.reported
    yield Heading(say(language, "heading.beside"))
    lost = [row for row in findings.beside if row.problem is not None]
    if lost:
        problems = [say(language, "beside.problem", study=row.study, problem=row.problem) for row in lost]
        yield Bullets(problems, tone="warning")
    rows = [_row(row, language) for row in findings.beside if row.problem is None]
    header = [say(language, f"column.{name}") for name in COLUMNS]
    align: list[Align] = ["left", "left", "left", "right", "right", "left", "right", "right"]
    rows += [_claim(claim, language) for claim in claims]
    yield Table(say(language, "beside.table"), header, rows, align)
    yield Paragraph(say(language, "beside.caution"), tone="note")
    if claims:
        yield Paragraph(say(language, "beside.reported"))
    remarks = [in_language(remark, language) for claim in claims for remark in claim.remarks]
    if remarks:
        yield Bullets(remarks, title=say(language, "beside.remarks"))


def _row(row: Beside, language: Language) -> list[str]:
    label = row.label[("en", "zh").index(language)]
    sizes = {
        "layers": row.model.get("num_layers"),
        "width": row.model.get("d_model"),
        "scope": scope_line(row.scope, language) if row.scope else "",
    }
    measure = MEASURES[row.measure]
    values = {
        "quality": in_words(measure.name, language),
        "baseline": quality.value(measure, row.baseline_quality),
        "frozen": quality.value(measure, row.treatment_quality),
    }
    ratio = row.ratio
    return [
        say(language, "beside.source", study=row.study, arm=label),
        say(language, "beside.encoder" if row.fine_tunes else "beside.gpt", **sizes),
        say(language, "beside.quality", **values),
        _difference(measure, row.difference, language),
        str(len(row.difference.seeds)) if row.difference else numbers.NONE,
        _outcomes(row, language),
        f"{numbers.ratio(ratio.middle)} {numbers.interval(ratio.low, ratio.high, numbers.ratio)}"
        if ratio
        else numbers.NONE,
        share_with_one_decimal(row.trainable_share),
    ]


def _difference(measure: Measure, difference: PairedDifference | None, language: Language) -> str:
    if difference is None or difference.mean is None:
        return numbers.NONE
    return quality.with_interval(quality.difference_with_unit(measure, difference.mean, language), measure, difference)


def _outcomes(row: Beside, language: Language) -> str:
    if not row.outcomes:
        return say(language, "beside.no_claim")
    return say(language, "list_semicolon").join(
        say(language, "beside.outcome", name=name, outcome=say(language, f"outcome.{outcome}"))
        for name, outcome in row.outcomes.items()
    )


def share_with_one_decimal(value: float | None) -> str:
    return numbers.NONE if value is None else f"{100 * value:.1f} %"


def _claim(claim: Claim, language: Language) -> list[str]:
    """In the order of COLUMNS."""
    cells = (
        claim.source, claim.model_and_task, claim.from_baseline, claim.number, claim.number_of_seeds, claim.outcome,
        claim.ratio, claim.trainable_share,
    )  # fmt: skip
    texts = (str(cell) if isinstance(cell, int) else cell for cell in cells)
    return [numbers.NONE if text is None else in_language(text, language) for text in texts]
