"""What is to be said of a study's folder besides its runs, as codes with facts: the English of each stands here.

Terminals show it as it is; a report has the same sentence, and the Chinese one, among its words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from typing import Any

Remark = tuple[str, dict[str, Any]]
Differences = tuple[tuple[str, Any, Any], ...]  # key, as stored, as the study has it now
DATA_DIGEST = "data digest"  # as such a key

SENTENCES: dict[str, str] = {
    # Finished runs in the folder that the study, as it is now, does not plan.
    "other_config": "{runs} finished runs here belong to another config: {differences}",
    "other_config.one": "{runs} finished run here belongs to another config: {differences}",
    "other_data": "{runs} finished runs here were made from other data, and do not count: digest {digests}, not "
    "{counted}",
    "other_data.one": "{runs} finished run here was made from other data, and does not count: digest {digests}, not "
    "{counted}",
    "other_arms": "{runs} finished runs here belong to arms that the study does not have: {names}",
    "other_arms.one": "{runs} finished run here belongs to an arm that the study does not have: {names}",
    "other_seeds": "{runs} finished runs here are of seeds that the study does not have: {seeds}",
    "other_seeds.one": "{runs} finished run here is of a seed that the study does not have: {seeds}",
    "other_points": "{runs} finished tuning runs here are of points that the grid does not have, and no choice uses "
    "them: {points}",
    "other_points.one": "{runs} finished tuning run here is of a point that the grid does not have, and no choice uses "
    "it: {points}",
    "unchosen": "{runs} finished final runs here do not count: their values ({points}) were not chosen by the tuning "
    "runs that are here, and no stored choice names them",
    "unchosen.one": "{runs} finished final run here does not count: its values ({points}) were not chosen by the "
    "tuning runs that are here, and no stored choice names them",
    "unlike_copies": "Finished runs of one computation report different numbers, and of each pair only the first "
    "counts: {copies}; move the one that should not count elsewhere",
    # Runs that count.
    "other_execution": "{runs} finished runs here were computed otherwise than the study now declares, and still "
    "count: {differences}",
    "other_execution.one": "{runs} finished run here was computed otherwise than the study now declares, and still "
    "counts: {differences}",
    "same_losses": "Finished runs of one arm with different seeds report exactly the same losses from the first record "
    "to the last: {copies}; either one is a copy of the other, or the seed has no effect",
    "bench_other_names": "The bench measured arms that the study now calls otherwise, and counts for them: {names}",
    "bench_other_config": "The bench measured another config: {differences}; measure again with oelm bench {study}",
    # Choices that the tuning runs decided.
    "choice_contradicted": "{arm}: {chosen} was chosen at {made} and stays; from the present tuning runs it "
    "would be {now}",
    "choice_runs_changed": "{arm}: {chosen} was chosen at {made} and stays, but its tuning runs have changed since: "
    "{changes}",
    "round_contradicted": "{arm}: what round {number} of tuning dropped was stored at {made} and stays; from the "
    "present tuning runs it would drop: {now}",
    "choice_replaced": "{arm}: the choice of {made} was made for another declaration ({differences}); no final run "
    "used it, and a new choice replaces it",
    "choices_damaged": "{line}; no run is started: restore the file, or delete it to choose again from the present "
    "tuning runs",
    "choices_other_declaration": "{file}: what was chosen at {made} for {names} belongs to another declaration "
    "({differences}), and final runs used it; no run is started: undo the change, or delete the file to choose again",
    "choices_not_stored": "Chosen values that were not stored when they were chosen, so they follow from the present "
    "tuning runs: {names}",
    "choices_stored_late": "The chosen values were stored at {made}, when {runs} final runs that use them had started",
    "choices_stored_late.one": "The chosen values were stored at {made}, when {runs} final run that uses them had "
    "started",
    # Looks at the claims.
    "looks_other_declaration": "{file}: the claims were looked at for another declaration, first at {made} "
    "({differences}); no run is started: undo the change, or delete the file to look again",
    "looks_other_runs": "{file}: the claims were looked at with runs that the study does not plan now, first at {made} "
    "({names}); no run is started: undo the change, or delete the file to look again",
    "look_runs_changed": "The looks taken from {made} on stay, but runs that they used have changed since: {changes}",
    "look_stored_late": "Look {look} was stored at {made}, when {runs} runs that go beyond it had started",
    "look_stored_late.one": "Look {look} was stored at {made}, when {runs} run that goes beyond it had started",
    # The registration of the declaration.
    "registration.none": "not registered",
    "registration.waiting": "registered at {registered}, before any run started",
    "registration.before": "registered at {registered}, before the first run started ({first})",
    "registration.after": "registered at {registered}, when final runs had started: {early} of {runs}, "
    "the first at {first}",
    "registration.after_undated": "registered at {registered}, when final runs had started: {early} of {runs}",
    "registration.before_final": "registered at {registered}, before any final run started; tuning had begun",
    "registration.undated": "registered at {registered}; it cannot be shown that this came before the final runs: "
    "{undated} of {runs} do not record when they started",
    "registration.damaged": "{line}; restore the file, or delete it to register again",
    "registration.unchanged": "unchanged since",
    "registration.changed": "changed since: {changes}",
    "registration.later": "another declaration registered after that, with runs started: {times}",
}


def code_of(code: str, facts: dict[str, Any]) -> str:
    """The code of the sentence about one run, where there is one and it is about one."""
    return f"{code}.one" if facts.get("runs") == 1 and f"{code}.one" in SENTENCES else code


def sentence(code: str, facts: dict[str, Any]) -> str:
    return SENTENCES[code_of(code, facts)].format(**facts)


def differences(then: Mapping[str, Any], now: Mapping[str, Any], *, beside: Container[str] = ()) -> Differences:
    """Keys of two flat trees with unlike values, but for some; None is the value of a key that is not there."""
    keys = (key for key in dict.fromkeys([*then, *now]) if key not in beside)
    return tuple((key, then.get(key), now.get(key)) for key in keys if then.get(key) != now.get(key))


def stated_differences(found: Differences, declared: Mapping[str, Any]) -> Differences:
    """Those of settings that are declared: what follows from one of them is left out beside it."""
    return tuple(each for each in found if each[0] not in declared or declared[each[0]] is not None) or found


NOW = ", now "  # a report has another language's word for it


def difference_text(key: str, then: Any, now: Any) -> str:
    return f"{key} {value_text(then)}{NOW}{value_text(now)}"


def value_text(value: Any, length: int = 60) -> str:
    """One line, as a study file would have it; long texts are shortened."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "declared"
    if isinstance(value, float):
        return f"{value:g}"
    text = " ".join(str(value).split())
    return text if len(text) <= length else text[: length - 1] + "…"


def some(texts: list[str], most: int = 4) -> str:
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return "; ".join(texts[:most] + more)


MOST_KINDS = 3  # of differences that are told apart


def kinds_text(kinds: Counter[Differences]) -> str:
    """What differs, for each kind of run with the number of them, where there are several kinds."""
    told = [(some([difference_text(*each) for each in found]), runs) for found, runs in kinds.most_common()]
    if len(told) == 1:
        return told[0][0]
    texts = [f"{text} ({runs})" for text, runs in told]
    more = [f"and {len(texts) - MOST_KINDS} more kinds"] if len(texts) > MOST_KINDS else []
    return "; ".join(texts[:MOST_KINDS] + more)
