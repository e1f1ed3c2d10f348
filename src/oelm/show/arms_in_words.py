"""Arms and the analysis' remarks about them as sentences of a language."""

from __future__ import annotations

from typing import Any

from oelm.analysis.findings import Findings
from oelm.core.arm_words import spoken_of, when
from oelm.core.options import in_use
from oelm.core.parts import ABBREVIATIONS, Part
from oelm.show import numbers, quality
from oelm.show.tables import label_of
from oelm.show.verdicts import short_digests
from oelm.show.words import LANGUAGES, say, say_or_code
from oelm.study.declaration import Language
from oelm.study.one_run import declared_model
from oelm.study.remarks import NOW, code_of


def described_arm(findings: Findings, arm: str, language: Language) -> str:
    """How the parts worth a word start, when they move, and which options are in use."""
    model = declared_model(findings.study, arm)
    parts = model.parts
    alike: dict[str, list[str]] = {}
    for role in spoken_of(parts):
        name = ABBREVIATIONS.get(role) or say(language, f"role.{role}")
        alike.setdefault(_part(parts.of(role), language), []).append(name)
    said = [
        say(language, "arm.parts", names=say(language, "list_comma").join(names), text=text)
        for text, names in alike.items()
    ]
    said += [option.said(facts, LANGUAGES.index(language)) for option, facts in in_use(model)]
    return say(language, "arm.between_parts").join(said)


def _part(part: Part, language: Language) -> str:
    text = say(language, f"start.{part.start}")
    if part.gain != 1:
        text += say(language, "start.gain", gain=f"{part.gain:g}")
    code, facts = when(part.moves)
    text += say(language, f"moves.{code}", **facts)
    if isinstance(part.layers, list):
        text += say(language, "moves.layers", layers=", ".join(map(str, part.layers)))
    elif part.layers != "all":
        text += say(language, f"moves.layers_{part.layers}")
    elif part.share != 1:
        text += say(language, "moves.share_heads", percent=f"{part.share:.0%}")
    return text


def note_sentence(findings: Findings, code: str, facts: dict[str, Any], language: Language) -> str:
    said = {key: _fact(findings, key, facts[key], language) for key in facts}
    return say_or_code(language, f"note.{code_of(code, facts)}", said, study=findings.study)


def _fact(findings: Findings, key: str, value: Any, language: Language) -> str:
    if key == "arm":
        return label_of(findings, value, language)
    if key in ("reached", "floor"):
        return quality.value(findings.study.measure, value)
    if key in ("learning_rate", "value"):
        return numbers.learning_rate(value)
    if key in ("differences", "changes"):
        value = value.replace(NOW, say(language, "differences.now"))
    values = value if isinstance(value, list) else [value]
    return say(language, "list_comma").join(short_digests(str(each)) for each in values)
