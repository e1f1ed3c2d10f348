"""A study, a run and a verdict as Jupyter shows them. Every text is escaped: a label may contain anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

from oelm.analysis.findings import Findings, ScopedVerdict
from oelm.machine.visible import visible
from oelm.run.directory import final_numbers
from oelm.show import tables, verdicts
from oelm.show.article import Table
from oelm.study.declaration import Language, in_language
from oelm.study.shelf import StoredRun


def _text(value: object) -> str:
    return escape(visible(value))


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{_text(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True)
class RunView:
    stored: StoredRun

    def __repr__(self) -> str:
        return visible(f"run {self.stored.name}: {self._outcome}")

    @property
    def _outcome(self) -> str:
        result, error = self.stored.result, self.stored.error
        said = final_numbers(result) if result else error
        return f"{self.stored.state}, {said}" if said else self.stored.state

    def _repr_html_(self) -> str:
        run = self.stored.run
        seeds = ", ".join(f"{name} {seed}" for name, seed in run.seeds.model_dump().items())
        rows = [
            ("arm", self.stored.arm),
            ("seeds", seeds),
            ("steps", f"{run.training.steps:,}"),
            ("learning rate", f"{run.training.learning_rate:g}"),
            ("outcome", self._outcome),
        ]
        return _table(("run", self.stored.name), rows)


@dataclass(frozen=True)
class VerdictView:
    findings: Findings
    verdict: ScopedVerdict
    language: Language = "en"

    @property
    def row(self) -> dict[str, Any]:
        """Its numbers, none rounded."""
        verdict, difference = self.verdict, self.verdict.difference
        hypothesis = verdict.hypothesis
        measure = hypothesis.quality
        ends = measure.ends(difference.low, difference.high) if difference else (None, None)
        middle = difference.mean if difference else None
        shown = [None if each is None else measure.shown_difference(each) for each in (middle, *ends)]
        return {
            "claim": hypothesis.name,
            "kind": hypothesis.kind,
            "treatment": hypothesis.treatment,
            "control": hypothesis.control,
            "outcome": verdict.outcome,
            "reason": verdict.reason,
            "reservations": ", ".join(code for code, _ in verdict.reservations),
            **dict(zip(("difference", "low", "high"), shown, strict=True)),
            "pairs": len(difference.seeds) if difference else None,
            "p": verdict.p,
            "p_adjusted": verdict.p_adjusted,
            "rates": verdict.rates.code if verdict.rates else None,
            "rate_allowance": None if verdict.allowance is None else measure.scale.shown_difference(verdict.allowance),
        }

    def __repr__(self) -> str:
        return visible(f"{self.verdict.hypothesis.name}: {self.verdict.outcome}")

    def _repr_html_(self) -> str:
        box = verdicts.verdict_box(self.findings, self.verdict, self.language)
        reservations = "".join(f"<p><b>{_text(each)}</b></p>" for each in box.reservations)
        remarks = "".join(f"<p>{_text(each)}</p>" for each in box.remarks)
        return (
            f"<div><p><b>{_text(box.name)}: {_text(box.outcome_word)}</b></p>"
            f"<p>{_text(box.claim)} <i>{_text(box.scope)}</i></p><p>{_text(box.sentence)}</p>{reservations}"
            f"{_table(('', ''), box.numbers)}{remarks}</div>"
        )


@dataclass(frozen=True)
class StudyView:
    """The question, the verdicts and the table of the arms."""

    findings: Findings
    language: Language = "en"

    def __repr__(self) -> str:
        return visible(f"study {self.findings.study.name}: {len(self.findings.verdicts)} claims")

    def _repr_html_(self) -> str:
        findings, language = self.findings, self.language
        table: Table = tables.quality_table(findings, language)
        outcome = verdicts.outcome_summary(findings, language) if findings.verdicts else ""
        boxes = [verdicts.verdict_box(findings, each, language) for each in findings.verdicts]
        claims = "".join(
            f"<li>{_text(box.name)}: <b>{_text(verdicts.outcome_in_short(each, language))}</b> {_text(box.claim)}</li>"
            for box, each in zip(boxes, findings.verdicts, strict=True)
        )
        return (
            f"<div><h3>{_text(findings.study.name)}</h3><p>{_text(in_language(findings.study.question, language))}</p>"
            f"<p>{_text(outcome)}</p><ul>{claims}</ul>{_table(table.header, table.rows)}"
            f"<p><i>{_text(table.caption)}</i></p></div>"
        )
