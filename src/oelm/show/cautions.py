"""What a reader must know before any verdict: a file that was changed, after its runs or after its registration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oelm.analysis.findings import Findings
from oelm.show.arms_in_words import note_sentence
from oelm.show.words import say
from oelm.study.declaration import Language
from oelm.study.remarks import NOW, difference_text, some

DOUBTFUL = ("damaged", "after", "after_undated", "undated")  # standings of a registration
NOTES = (
    "other_config",
    "other_data",
    "other_arms",
    "other_seeds",
    "other_points",
    "other_execution",
    "same_losses",
    "damaged",
)  # codes, shown first and nowhere else


def cautions(findings: Findings, language: Language) -> Iterator[str]:
    registration = findings.provenance.get("registration", {})
    changes = [
        difference_text(each["key"], each["registered"], each["now"]) for each in registration.get("changes", [])
    ]
    if changes:
        facts = {
            "registered": registration["registered"],
            "changes": some(changes).replace(NOW, say(language, "differences.now")),
        }
        yield say(language, "caution.registration", **facts)
    if registration.get("standing") in DOUBTFUL:
        yield say(language, "caution.standing", registration=registration_text(registration, language))
    for code, facts in findings.notes:
        if code in NOTES:
            yield note_sentence(findings, code, facts, language)


def registration_text(registration: dict[str, Any], language: Language) -> str:
    """When the declaration was registered, and what can be said of the runs then."""
    names = {
        "registered": "registered", "first": "first_run_started", "early": "runs_before", "runs": "runs",
        "undated": "runs_undated", "line": "problem",
    }  # fmt: skip
    facts = {name: registration.get(key) for name, key in names.items()}
    return say(language, f"registration.{registration['standing']}", **facts)
