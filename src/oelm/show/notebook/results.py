"""`oelm.results`: what a study's runs say, as tidy pandas frames. Nothing here loads torch.

The numbers are those of a report: the same findings, as analysis_results.json has them.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oelm.analysis.findings import Findings
from oelm.analysis.summary import findings_of
from oelm.core.trackers.table import numbers_in
from oelm.machine.errors import UserError
from oelm.machine.installation import install_command
from oelm.machine.plurals import number_of
from oelm.run.directory import meant_by
from oelm.show.metric_export import CURVE_COLUMNS, OF_A_RUN, about, curves, run_name
from oelm.show.notebook.views import RunView, StudyView, VerdictView
from oelm.study.declaration import Language
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
        rows = [_row(stored) for stored in self._stored.values()]
        columns = dict.fromkeys(RUN_COLUMNS) | dict.fromkeys(key for row in rows for key in row)
        frame: pandas.DataFrame = _pandas().DataFrame(rows, columns=list(columns))
        return frame

    @cached_property
    def curves(self) -> pandas.DataFrame:
        """One row for each record of a run that is not damaged: run, stage, arm, seed, step, and its numbers."""
        rows = list(curves(self._given))
        columns = dict.fromkeys(CURVE_COLUMNS) | dict.fromkeys(key for row in rows for key in row)
        frame: pandas.DataFrame = _pandas().DataFrame(rows, columns=list(columns))
        return frame

    @cached_property
    def verdicts(self) -> pandas.DataFrame:
        """One row for each hypothesis. Differences and their 95 % intervals are as a report shows them: per cent of
        perplexity, or percentage points."""
        rows = [VerdictView(self.findings, each, self._language).row for each in self.findings.verdicts]
        frame: pandas.DataFrame = _pandas().DataFrame(rows, columns=list(VERDICT_COLUMNS)).astype(VERDICT_NUMBERS)
        return frame

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


def _row(stored: StoredRun) -> dict[str, Any]:
    """Numbers that a result has under a name are called NAME/KEY, as in curves."""
    result = stored.result or {}
    plain = {key: value for key, value in result.items() if not isinstance(value, dict | list)}
    return {**numbers_in(result), **plain, **about(stored), "state": stored.state}
