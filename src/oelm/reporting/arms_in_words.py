"""Arms and the analysis' remarks about them as sentences of a language."""

from __future__ import annotations

from typing import Any

from oelm.analysis.findings import Findings
from oelm.arm_words import when
from oelm.config import Projection
from oelm.reporting import numbers
from oelm.reporting.tables import label_of
from oelm.reporting.verdicts import short_digests
from oelm.reporting.words import say, say_or_code
from oelm.study.declaration import Language, settings_for
from oelm.study.remarks import NOW, code_of


def described_arm(findings: Findings, arm: str, language: Language) -> str:
    """How queries and keys start, and when they move."""
    study = findings.study
    attention = settings_for(study, arm, seed=study.seeds[0]).run.model.attention
    query, key = (_projection(each, language) for each in (attention.query, attention.key))
    if query == key:
        return say(language, "arm.both", text=query)
    return say(language, "arm.each", query=query, key=key)


def _projection(projection: Projection, language: Language) -> str:
    text = say(language, f"start.{projection.start}")
    if projection.gain != 1:
        text += say(language, "start.gain", gain=f"{projection.gain:g}")
    code, facts = when(projection.moves)
    text += say(language, f"moves.{code}", **facts)
    if projection.share != 1:
        text += say(language, f"moves.share_{projection.share_of}", percent=f"{projection.share:.0%}")
    return text


def note_sentence(findings: Findings, code: str, facts: dict[str, Any], language: Language) -> str:
    said = {key: _fact(findings, key, facts[key], language) for key in facts}
    return say_or_code(language, f"note.{code_of(code, facts)}", said)


def _fact(findings: Findings, key: str, value: Any, language: Language) -> str:
    if key == "arm":
        return label_of(findings, value, language)
    if key == "accuracy":
        return numbers.share(value)
    if key in ("learning_rate", "value"):
        return numbers.learning_rate(value)
    if key in ("differences", "changes"):
        value = value.replace(NOW, say(language, "differences.now"))
    values = value if isinstance(value, list) else [value]
    return say(language, "list_comma").join(short_digests(str(each)) for each in values)
