"""Two arms example by example: McNemar's table of every pair of runs, and how exact one accuracy is at all."""

from __future__ import annotations

from collections.abc import Container, Iterator

from oelm.analysis.findings import Findings, McNemar
from oelm.core.floors import accuracy_standard_error
from oelm.show import numbers, quality
from oelm.show.article import Block, Heading, Paragraph, Table, words_then_numbers
from oelm.show.words import say, say_of
from oelm.study.declaration import Language

COUNTS = ("both_right", "treatment_only", "control_only", "both_wrong")


def examples(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    """Nothing where no predictions are compared."""
    if not findings.study.measure.from_predictions:
        return
    yield Heading(say(language, "heading.examples"))
    gap = " " if language == "en" else ""
    yield Paragraph(gap.join(_on_one_accuracy(findings, language)))
    rows = [
        [names, str(pair.seed), *_cells(pair)]
        for names, pairs in _by_pair_of_arms(findings, language).items()
        for pair in pairs
    ]
    if not rows:
        yield Paragraph(say(language, "examples.none"))
        return
    yield Paragraph(say(language, "examples.sentence"))
    columns = ("hypothesis", "seed", *COUNTS, "shown_difference", "p")
    header = [say_of(findings.study, language, f"column.{name}") for name in columns]
    yield Table(say(language, "examples.table"), header, rows, words_then_numbers(len(columns)))


def _by_pair_of_arms(findings: Findings, language: Language) -> dict[str, list[McNemar]]:
    """Names of the hypotheses -> the tables of their arms: two claims about the same arms share them."""
    found: dict[tuple[str, str], tuple[list[str], list[McNemar]]] = {}
    for verdict in findings.verdicts:
        claim = verdict.hypothesis
        names, _ = found.setdefault((claim.treatment, claim.control), ([], verdict.mcnemar))
        names += [claim.name] if verdict.mcnemar else []
    return {say(language, "list_comma").join(names): pairs for names, pairs in found.values()}


def _cells(pair: McNemar) -> list[str]:
    counts = [numbers.whole(getattr(pair, name)) for name in COUNTS]
    return [*counts, numbers.points(gain(pair)), numbers.probability(pair.p)]


def gain(pair: McNemar) -> float:
    """Of the treatment, in percentage points."""
    return 100 * (pair.treatment_only - pair.control_only) / pair.examples


def _on_one_accuracy(findings: Findings, language: Language) -> Iterator[str]:
    baseline = findings.arms[findings.study.baseline]
    accuracy = baseline.quality.mean
    if accuracy is not None and baseline.examples:
        error = 100 * accuracy_standard_error(accuracy, baseline.examples)
        yield say(
            language,
            "examples.error",
            accuracy=numbers.share(accuracy),
            examples=numbers.whole(baseline.examples),
            error=quality.in_points(language, f"{error:.2f}"),
        )
