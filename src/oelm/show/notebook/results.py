"""`oelm.results`: what a study's runs say, as tidy pandas frames, and as Jupyter shows them. Nothing here loads torch.

The numbers are those of a report: the same findings, as analysis_results.json has them. Every text of a view is
escaped: a label may contain anything.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oelm.analysis.findings import Findings, ScopedVerdict
from oelm.analysis.summary import findings_of
from oelm.core.trackers.table import numbers_in
from oelm.machine.errors import UserError
from oelm.machine.installation import install_command
from oelm.machine.plurals import number_of
from oelm.machine.visible import visible
from oelm.run.directory import final_numbers, meant_by
from oelm.show import quality, tables, verdicts
from oelm.show.metric_export import CURVE_COLUMNS, OF_A_RUN, about, curves, run_name
from oelm.study.declaration import Language, in_language
from oelm.study.given_results import GivenResults, given_results
from oelm.study.shelf import Shelf, StoredRun

if TYPE_CHECKING:
    import pandas

RUN_COLUMNS = (*OF_A_RUN, "state")
VERDICT_COLUMNS = (
    "claim", "kind", "treatment", "control", "outcome", "reason", "reservations", "difference", "low", "high",
    "pairs", "p", "p_adjusted", "rates", "rate_allowance",
)  # fmt: skip
SHOWN_RUNS = 20  # of a folder without a study
VERDICT_NUMBERS = dict.fromkeys(("difference", "low", "high", "p", "p_adjusted", "rate_allowance"), "float64") | {
    "pairs": "Int64"
}


def results(source: str | Path, *, study: str | Path | None = None, language: Language = "en") -> Results:
    """Of a study by name or file, a folder of runs, an archive, or one run. `study` says which one runs are of, where
    neither the name of their folder nor their archive does."""
    _pandas()
    return Results(given_results(source, study=study), language)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise UserError(f"oelm.results needs pandas: {install_command('notebook')}") from error
    return pandas


class Results:
    """Frames are made when they are first asked for."""

    def __init__(self, given: GivenResults, language: Language) -> None:
        self.name = given.name
        self._given, self._language = given, language

    @cached_property
    def _stored(self) -> dict[str, StoredRun]:
        for line in self._given.damage:
            warnings.warn(line, stacklevel=2)
        return {run_name(stored.directory): stored for stored in self._given.stored}

    @cached_property
    def runs(self) -> pandas.DataFrame:
        """One row for each stored run: its state, and everything that its result says."""
        return _frame([_row(stored) for stored in self._stored.values()], RUN_COLUMNS)

    @cached_property
    def curves(self) -> pandas.DataFrame:
        """One row for each record of a run that is not damaged: run, stage, arm, seed, step, and its numbers."""
        return _frame(list(curves(self._given)), CURVE_COLUMNS)

    @cached_property
    def verdicts(self) -> pandas.DataFrame:
        """One row for each hypothesis. Differences and their 95 % intervals are as a report shows them: per cent of
        perplexity, or percentage points."""
        rows = [VerdictView(self.findings, each, self._language).row for each in self.findings.verdicts]
        return _frame(rows, VERDICT_COLUMNS).astype(VERDICT_NUMBERS)

    @cached_property
    def findings(self) -> Findings:
        """All that a report is made from."""
        study = self._given.study
        if study is None:
            raise UserError(
                f"{self.name}: no study of that name is known; give it: oelm.results(..., study='STUDY.yaml')"
            )
        return findings_of(study, Shelf(self._given.folder))

    @property
    def study(self) -> StudyView:
        return StudyView(self.findings, self._language)

    def run(self, name: str) -> RunView:
        """By its name in `runs`, or as `oelm logs` takes it: the beginning of a name will do."""
        known = {stored.directory.path: stored for stored in self._stored.values()}
        found = meant_by(name, dict.fromkeys(known, self.name))
        if len(found) != 1:
            which = f"could be {', '.join(path.name for path in found[:5])}" if found else "`runs` lists them"
            raise UserError(f"{self.name}: has {'several runs' if found else 'no run'} {name!r}; {which}")
        return RunView(known[found[0]])

    def verdict(self, claim: str) -> VerdictView:
        """By the name of its hypothesis."""
        found = {each.hypothesis.name: each for each in self.findings.verdicts}
        if claim not in found:
            raise UserError(f"{self.name}: has no claim {claim!r}, only {', '.join(found) or 'none'}")
        return VerdictView(self.findings, found[claim], self._language)

    def __repr__(self) -> str:
        return f"results of {self.name}: {len(self._stored)} runs"

    def _repr_html_(self) -> str:
        if self._given.study is not None:
            return self.study._repr_html_()
        shown = [RunView(stored)._repr_html_() for stored in list(self._stored.values())[:SHOWN_RUNS]]
        more = len(self._stored) - len(shown)
        return "".join([*shown, f"<p>and {number_of(more, 'further run')}: see <code>runs</code></p>" if more else ""])


def _frame(rows: list[dict[str, Any]], first: Iterable[str]) -> pandas.DataFrame:
    """With these columns first, then whatever the rows have."""
    columns = dict.fromkeys(first) | dict.fromkeys(key for row in rows for key in row)
    frame: pandas.DataFrame = _pandas().DataFrame(rows, columns=list(columns))
    return frame


def _row(stored: StoredRun) -> dict[str, Any]:
    """Numbers that a result has under a name are called NAME/KEY, as in curves."""
    result = stored.result or {}
    plain = {key: value for key, value in result.items() if not isinstance(value, dict | list)}
    return {**numbers_in(result), **plain, **about(stored), "state": stored.state}


# ---- What a notebook shows ------------------------------------------------------------------------------------------


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
        said = final_numbers(self.stored.result) if self.stored.result else self.stored.error
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
        low, high = quality.ends(measure, difference.low, difference.high) if difference else (None, None)
        mean = difference.mean if difference else None
        return {
            "claim": hypothesis.name,
            "kind": hypothesis.kind,
            "treatment": hypothesis.treatment,
            "control": hypothesis.control,
            "outcome": verdict.outcome,
            "reason": verdict.reason,
            "reservations": ", ".join(code for code, _ in verdict.reservations),
            "difference": None if mean is None else measure.shown_difference(mean),
            "low": low,
            "high": high,
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
        table = tables.quality_table(findings, language)
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
