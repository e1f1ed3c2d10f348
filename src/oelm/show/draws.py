"""How many draws of random parts a claim rests on: one for each seed."""

from __future__ import annotations

from collections.abc import Container, Iterator

from oelm.analysis.findings import Findings
from oelm.show.article import Block, Paragraph
from oelm.show.tables import label_of
from oelm.show.words import say
from oelm.study.declaration import Language
from oelm.study.one_run import is_drawn


def draws(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    counts: dict[int, list[str]] = {}  # finished seeds -> arms
    for arm, summary in findings.arms.items():
        if summary.losses and is_drawn(findings.study, arm, summary.values):
            counts.setdefault(len(summary.losses), []).append(label_of(findings, arm, language))
    for seeds, arms in counts.items():
        listed = say(language, "list_semicolon").join(arms)
        yield Paragraph(say(language, "draws.one", arms=listed, total=seeds), tone="note")
