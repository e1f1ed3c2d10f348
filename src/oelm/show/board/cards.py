"""Each hypothesis as a card: what the report's box says of it, and its interval as a page draws it.

While runs are missing every card says so: a verdict that may still change must not look like one that cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from oelm.analysis.findings import Findings, ScopedVerdict
from oelm.show.board.words import say_on_page
from oelm.show.verdicts import verdict_box
from oelm.show.words import say, say_of
from oelm.study.claims.kinds import KINDS, OF_DIFFERENCES
from oelm.study.declaration import Hypothesis, Language, Study, in_language
from oelm.study.scaled import arms_compared


def cards_of(findings: Findings, language: Language) -> list[dict[str, Any]]:
    return [_card(findings, verdict, language) for verdict in findings.verdicts]


def cards_without_runs(study: Study, language: Language) -> list[dict[str, Any]]:
    """Of a study of which nothing has begun."""
    return [
        {
            "name": each.name,
            "claim": in_language(each.claim, language),
            "outcome": "undecided",
            "outcome_word": say(language, "outcome.undecided"),
            "sentence": "",
            "numbers": [],
            "reservations": [],
            "remarks": [],
            "incomplete": say_on_page(language, "card.nothing_yet"),
            "interval": None,
        }
        for each in study.hypotheses
    ]


def _card(findings: Findings, verdict: ScopedVerdict, language: Language) -> dict[str, Any]:
    box = asdict(verdict_box(findings, verdict, language))
    return box | {
        "incomplete": _incomplete(findings, verdict, language),
        "interval": _interval(findings, verdict, language),
    }


def _incomplete(findings: Findings, verdict: ScopedVerdict, language: Language) -> str | None:
    """How many of the final runs of the arms that it compares are still to come, or that others are; None: none is."""
    hypothesis, is_done = verdict.hypothesis, findings.plan.is_done
    if hypothesis.evidence == "speed" and verdict.ratio is None:
        return say_on_page(language, "card.no_bench")
    is_settled = hypothesis.evidence in ("parameters", "speed") or (
        verdict.look is not None and verdict.look.is_settled
    )
    done, planned = _runs_of(findings, hypothesis)
    if done < planned and not is_settled:
        return say_on_page(language, "card.incomplete", done=done, planned=planned)
    code = "card.study_incomplete.settled" if is_settled or not hypothesis.confirmatory else "card.study_incomplete"
    return None if is_done else say_on_page(language, code)


def _runs_of(findings: Findings, hypothesis: Hypothesis) -> tuple[int, int]:
    """How many final runs of its arms have ended, of how many that may be needed."""
    plan = findings.plan
    arms = {arm for pair in arms_compared(findings.study, hypothesis) for arm in pair}
    runs = [run for arm in arms for run in plan.by_arm.get(arm, [])]
    planned = sum(arm in findings.study.arms for arm in arms) * len(findings.study.seeds)
    return sum(run.has_ended for run in runs), planned - sum(run.state == "not_needed" for run in runs)


def _interval(findings: Findings, verdict: ScopedVerdict, language: Language) -> dict[str, Any] | None:
    """Mean, ends and single seeds, with the edges between which the claim holds; None: nothing to draw."""
    hypothesis, measure = verdict.hypothesis, verdict.hypothesis.quality
    axis = say_of(findings.study, language, "axis.shown_difference")
    if verdict.ratio is not None:
        bounds = KINDS[hypothesis.kind].bounds((hypothesis.margin or 0.0) / 100)
        ends = {"low": verdict.ratio.low, "high": verdict.ratio.high, "mean": verdict.ratio.middle}
        region = {"from": bounds.lower, "to": bounds.upper, "origin": 1.0}
        return {**ends, **region, "seeds": [], "axis": say(language, "box.ratio")}
    show = measure.shown_difference
    bounds = KINDS[hypothesis.kind].bounds(verdict.margin or 0.0)
    start, end = measure.ends(bounds.lower, bounds.upper)
    edges: dict[str, Any] = {"from": _shown(show, start), "to": _shown(show, end), "origin": 0.0, "axis": axis}
    slope = verdict.trend.slopes.get(verdict.trend.per) if verdict.trend else None
    if slope is not None:
        low, high = measure.ends(slope.low, slope.high)
        return {"low": _shown(show, low), "high": _shown(show, high), "mean": show(slope.slope), "seeds": [], **edges}
    difference = verdict.difference
    if hypothesis.evidence not in OF_DIFFERENCES or difference is None or difference.mean is None:
        return None
    low, high = measure.ends(difference.low, difference.high)
    seeds = [show(each) for each in difference.differences]
    return {
        "low": _shown(show, low),
        "high": _shown(show, high),
        "mean": show(difference.mean),
        "seeds": seeds,
        **edges,
    }


def _shown(show: Callable[[float], float], value: float | None) -> float | None:
    return None if value is None else show(value)
