"""The file itself: a line for each number, with what it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oelm.analysis.findings import Findings
from oelm.show import numbers
from oelm.show.citable import of_arms, of_claims, of_scale, of_studies, of_tuning
from oelm.show.latex import comment, escaped
from oelm.show.macro_names import Of, macro_name


@dataclass(frozen=True)
class Citable:
    measure: str  # first part of the macro's name
    text: str  # as a reader is shown it; numbers.NONE where there is none
    meaning: str  # in English, beside it
    of: Of | None = None
    name: str = ""  # of the arm or the claim

    def macro(self, study: str) -> str:
        return macro_name(self.measure, study, of=self.of, name=self.name)


def numbers_file(findings: Findings) -> str:
    study = findings.study.name
    opening = [
        f"Numbers of the study {study}, written by `oelm report`; it overwrites this file.",
        r"Write \name{} where a space follows. A number that the study does not have yet has no macro.",
    ]
    lines = [
        f"\\newcommand{{\\{each.macro(study)}}}{{{escaped(each.text)}}} {comment([_explained(each)])}"
        for each in citable(findings)
    ]
    return "\n".join([comment(opening), *lines]) + "\n"


def _explained(each: Citable) -> str:
    return f"{each.of} {each.name}: {each.meaning}" if each.of else each.meaning


def citable(findings: Findings) -> Iterator[Citable]:
    """All that are known."""
    found = [Citable(*each) for each in of_studies.rows(findings)]
    for arm, summary in findings.at_all_sizes.items():
        found += [Citable(*each, of="arm", name=arm) for each in of_arms.rows(findings, summary)]
    found += [Citable(*each, of="arm", name=arm) for arm, each in of_tuning.rows(findings)]
    if findings.scale is not None:
        of_sizes = of_scale.rows(findings.study.measure, findings.scale)
        found += [Citable(*each, of="arm", name=arm) for arm, each in of_sizes]
    for verdict in findings.verdicts:
        of_claim = of_claims.rows(findings, verdict)
        found += [Citable(*each, of="claim", name=verdict.hypothesis.name) for each in of_claim]
    return (each for each in found if each.text != numbers.NONE)
