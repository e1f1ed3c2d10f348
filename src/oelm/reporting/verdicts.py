"""Each verdict as a box of the document, and all of them as hypothesis_validation.txt."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from oelm.analysis.findings import Findings, PairedDifference, Verdict
from oelm.reporting import numbers
from oelm.reporting.document import VerdictBox
from oelm.reporting.tables import label_of, one_line
from oelm.reporting.words import code_for, in_points, say, say_or_code
from oelm.study.confounds import SEEDS, Confound
from oelm.study.declaration import Hypothesis, Language, in_language

OUTCOMES = ("supported", "refuted", "undecided", "confounded")


def verdict_box(findings: Findings, verdict: Verdict, language: Language) -> VerdictBox:
    hypothesis = verdict.hypothesis
    return VerdictBox(
        name=hypothesis.name,
        claim=in_language(hypothesis.claim, language),
        outcome=verdict.outcome,
        outcome_word=say(language, f"outcome.{verdict.outcome}"),
        sentence=reason_sentence(findings, verdict, language),
        numbers=[*_criterion(findings, hypothesis, language), *_numbers(findings, verdict, language)],
        remarks=_remarks(findings, verdict, language),
    )


def outcome_summary(findings: Findings, language: Language) -> str:
    """Hypotheses: 2 supported, 1 refuted, 1 undecided."""
    counted = Counter(verdict.outcome for verdict in findings.verdicts)
    parts = [
        say(language, "verdicts.outcome_count", count=counted[each], outcome=say(language, f"outcome.{each}"))
        for each in OUTCOMES
        if counted[each]
    ]
    joined = say(language, "list_comma").join(parts)
    return say(language, "verdicts.summary", outcomes=joined)


# ---- The sentence --------------------------------------------------------------------------------------------------


def reason_sentence(findings: Findings, verdict: Verdict, language: Language) -> str:
    facts = {key: _fact(findings, key, value, language) for key, value in verdict.facts.items()}
    if verdict.hypothesis.kind == "fewer_parameters" and "percent" in verdict.facts:
        facts["percent"] = numbers.plain_percent(round(verdict.facts["percent"], 2))  # "fewer" has the sign already
    return say_or_code(language, f"reason.{verdict.reason}", facts)


def _fact(findings: Findings, key: str, value: Any, language: Language) -> str:
    """Numbers by what their names say they are."""
    if isinstance(value, dict):
        return _seeds_by_state(value, language)
    if key == "arms":
        return say(language, "list_comma").join(label_of(findings, arm, language) for arm in value)
    if isinstance(value, list):
        return say(language, "list_comma").join(map(str, value)) or say(language, "nobody")
    if key == "margin_percent":
        return numbers.plain_percent(value)
    if key == "margin_points":
        return in_points(language, f"{value:.4g}")
    if key.endswith("points"):
        return in_points(language, numbers.points(-value / 100))
    if key.endswith("percent"):
        return numbers.percent(value)
    return numbers.whole(value) if isinstance(value, int) else str(value)


def _seeds_by_state(seeds: dict[str, list[int]], language: Language) -> str:
    if not seeds:
        return say(language, "nothing_missing")
    return say(language, "list_semicolon").join(
        say(language, "seeds_by_state", state=say(language, f"state.{state}"), seeds=seed_list(which, language))
        for state, which in seeds.items()
    )


def seed_list(seeds: list[int], language: Language) -> str:
    """1, 2, 5–9."""
    parts: list[str] = []
    ordered = sorted(seeds)
    while ordered:
        last = 0
        while last + 1 < len(ordered) and ordered[last + 1] == ordered[last] + 1:
            last += 1
        parts += [f"{ordered[0]}–{ordered[last]}"] if last > 1 else list(map(str, ordered[: last + 1]))
        ordered = ordered[last + 1 :]
    return say(language, "list_comma").join(parts)


# ---- The numbers ---------------------------------------------------------------------------------------------------


def _criterion(findings: Findings, hypothesis: Hypothesis, language: Language) -> list[tuple[str, str]]:
    code = f"criterion.{hypothesis.kind}" + ("_by" if hypothesis.kind == "better" and hypothesis.margin else "")
    sentence = say(
        language,
        code_for(code, classifies=hypothesis.measure == "accuracy"),
        treatment=label_of(findings, hypothesis.treatment, language),
        control=label_of(findings, hypothesis.control, language),
        margin=_margin(hypothesis, language),
        least_frozen=numbers.whole(hypothesis.least_frozen),
    )
    found = [(say(language, "box.criterion"), sentence)]
    if hypothesis.fails_when:
        found.append((say(language, "box.fails_when"), in_language(hypothesis.fails_when, language)))
    return found


def _margin(hypothesis: Hypothesis, language: Language) -> str:
    if hypothesis.measure == "accuracy" and hypothesis.margin is not None:
        return in_points(language, f"{hypothesis.margin:.4g}")
    return numbers.plain_percent(hypothesis.margin)


def _numbers(findings: Findings, verdict: Verdict, language: Language) -> list[tuple[str, str]]:
    match verdict.hypothesis.kind:
        case "fewer_parameters":
            return _parameter_numbers(findings, verdict.hypothesis, language)
        case "faster":
            return _speed_numbers(verdict, language)
        case _:
            found = _accuracy_numbers if verdict.hypothesis.measure == "accuracy" else _loss_numbers
            return [*found(verdict, language), *_test_numbers(findings, verdict, language)]


def _loss_numbers(verdict: Verdict, language: Language) -> list[tuple[str, str]]:
    difference, found = verdict.difference, []
    if difference is not None and difference.mean is not None:
        found.append((say(language, "box.difference"), _with_interval(difference, numbers.nats, language, " nats")))
        found.append((say(language, "box.perplexity"), _with_interval(difference, numbers.percent_change, language)))
    if verdict.margin_nats:
        margin = {
            "percent": numbers.plain_percent(verdict.hypothesis.margin_percent),
            "nats": f"{verdict.margin_nats:.4f}",
        }
        found.append((say(language, "box.margin"), say(language, "box.margin_value", **margin)))
    return found


def _accuracy_numbers(verdict: Verdict, language: Language) -> list[tuple[str, str]]:
    difference, found = verdict.difference, []
    if difference is not None and difference.mean is not None:
        text = in_points(language, numbers.points(difference.mean))
        if difference.low is not None:
            interval = numbers.points_interval(difference.low, difference.high)
            text = say(language, "interval_of", middle=text, interval=interval)
        found.append((say(language, "box.difference"), text))
    if verdict.hypothesis.margin:
        found.append((say(language, "box.margin"), _margin(verdict.hypothesis, language)))
    if verdict.mcnemar:
        values = [
            say(language, "box.mcnemar_seed", seed=pair.seed, p=numbers.probability(pair.p)) for pair in verdict.mcnemar
        ]
        joined = say(language, "list_semicolon").join(values)
        found.append((say(language, "box.mcnemar"), say(language, "box.mcnemar_value", values=joined)))
    return found


def _test_numbers(findings: Findings, verdict: Verdict, language: Language) -> list[tuple[str, str]]:
    difference, found = verdict.difference, []
    tests = (("box.p_value", verdict.p), ("box.p_adjusted", verdict.p_adjusted), ("box.sign_flip", verdict.sign_flip_p))
    p_values = [say(language, code, p=numbers.probability(p)) for code, p in tests if p is not None]
    if p_values:
        found.append((say(language, "box.p"), say(language, "list_semicolon").join(p_values)))
    done = len(difference.seeds) if difference else 0
    seeds = say(language, "box.seeds_value", done=done, planned=len(findings.study.seeds))
    return [*found, (say(language, "box.seeds"), seeds)]


def _with_interval(difference: PairedDifference, show, language: Language, unit: str = "") -> str:
    middle = show(difference.mean) + unit
    if difference.low is None or difference.high is None:
        return middle
    return say(language, "interval_of", middle=middle, interval=numbers.interval(difference.low, difference.high, show))


def _parameter_numbers(findings: Findings, hypothesis: Hypothesis, language: Language) -> list[tuple[str, str]]:
    treatment, control = findings.arms[hypothesis.treatment], findings.arms[hypothesis.control]
    change = 100 * (treatment.trainable / control.trainable - 1)
    trained = say(
        language,
        "box.against",
        treatment=numbers.whole(treatment.trainable),
        control=numbers.whole(control.trainable),
        percent=numbers.percent(change),
    )
    return [
        (say(language, "box.parameters"), trained),
        (say(language, "box.frozen"), numbers.whole(treatment.frozen)),
    ]


def _speed_numbers(verdict: Verdict, language: Language) -> list[tuple[str, str]]:
    ratio = verdict.ratio
    if ratio is None:
        return []
    facts = {
        "ratio": numbers.ratio(ratio.middle),
        "interval": numbers.interval(ratio.low, ratio.high, numbers.ratio),
        "rounds": ratio.rounds,
    }
    return [(say(language, "box.ratio"), say(language, "box.ratio_value", **facts))]


# ---- Remarks -------------------------------------------------------------------------------------------------------


def _remarks(findings: Findings, verdict: Verdict, language: Language) -> list[str]:
    compared = (verdict.hypothesis.treatment, verdict.hypothesis.control)
    chance = [facts["arm"] for code, facts in findings.notes if code == "at_chance" and facts["arm"] in compared]
    found = [say(language, "box.at_chance", arm=label_of(findings, arm, language)) for arm in chance]
    if verdict.outcome == "confounded":
        outcome = say(language, f"outcome.{verdict.regardless}")
        found.append(say(language, "box.regardless", outcome=outcome))
        found += [
            say(language, "box.confound", confound=confound_sentence(confound, language))
            for confound in verdict.confounds
            if confound.explained is None and confound.key != SEEDS
        ]
    if verdict.seeds_needed is not None:
        found.append(say(language, "box.seeds_needed", seeds=numbers.whole(verdict.seeds_needed)))
    if not verdict.hypothesis.confirmatory:
        found.append(say(language, "box.exploratory"))
    return found


def confound_sentence(confound: Confound, language: Language) -> str:
    return say(
        language, "confounds.one", key=confound.key, treatment=short_digests(confound.treatment),
        control=short_digests(confound.control),
    )  # fmt: skip


def short_digests(text: str) -> str:
    """Whole digests stand in analysis_results.json."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b", r"\1…", text)


# ---- As text -------------------------------------------------------------------------------------------------------


def as_text(findings: Findings, language: Language) -> str:
    if not findings.verdicts:
        return say(language, "verdicts.none") + "\n"
    parts = [f"{findings.study.name}\n{outcome_summary(findings, language)}"]
    for verdict in findings.verdicts:
        box = verdict_box(findings, verdict, language)
        lines = [f"{box.name}  [{box.outcome_word}]  {one_line(box.claim)}", f"    {one_line(box.sentence)}"]
        lines += [f"    {name}: {one_line(value)}" for name, value in box.numbers]
        lines += [f"    {one_line(remark)}" for remark in box.remarks]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
