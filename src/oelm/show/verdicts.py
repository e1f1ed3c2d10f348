"""Each verdict as a box of the article, and all of them as hypothesis_validation.txt."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, assert_never

from oelm.analysis.findings import Findings, Outcome, PairedDifference, ScopedVerdict, Verdict
from oelm.core.measures import Measure
from oelm.core.options import OPTIONS, said_of
from oelm.core.solving import Criterion
from oelm.show import numbers, quality
from oelm.show.article import VerdictBox
from oelm.show.tables import label_of, one_line, scope_line
from oelm.show.words import LANGUAGES, WORDS, in_words, say, say_of, say_or_code
from oelm.study.bench import Ratio
from oelm.study.claims.kinds import KINDS, MEASURED
from oelm.study.confounds import SEEDS, Confound
from oelm.study.declaration import Hypothesis, Language, in_language
from oelm.study.one_run import declared_model
from oelm.study.remarks import NOW
from oelm.study.scaled import arms_compared, family_of

OUTCOMES: tuple[Outcome, ...] = ("supported", "refuted", "undecided", "confounded")


def verdict_box(findings: Findings, verdict: ScopedVerdict, language: Language) -> VerdictBox:
    hypothesis = verdict.hypothesis
    return VerdictBox(
        name=hypothesis.name,
        claim=in_language(hypothesis.claim, language),
        scope=say(language, "box.scope", scope=scope_line(verdict.scope, language)),
        outcome=verdict.outcome,
        outcome_word=say(language, f"outcome.{verdict.outcome}"),
        sentence=reason_sentence(findings, verdict, language),
        numbers=[
            *_criterion(findings, verdict, language),
            *_look(findings, verdict, language),
            *_numbers(findings, verdict, language),
            *_floor(findings, hypothesis, language),
        ],
        reservations=reservations(findings, verdict, language),
        remarks=_remarks(findings, verdict, language),
    )


def outcome_summary(findings: Findings, language: Language) -> str:
    """Hypotheses: 2 supported, 1 refuted, 1 undecided; and how far that reaches."""
    counted = Counter(verdict.outcome for verdict in findings.verdicts)
    parts = [
        say(language, "verdicts.outcome_count", count=counted[each], outcome=say(language, f"outcome.{each}"))
        for each in OUTCOMES
        if counted[each]
    ]
    return say(language, "verdicts.summary", outcomes=say(language, "list_comma").join(parts))


# ---- The sentence --------------------------------------------------------------------------------------------------


def reason_sentence(findings: Findings, verdict: Verdict, language: Language) -> str:
    measure = verdict.hypothesis.quality
    facts = {key: _fact(findings, measure, key, value, language) for key, value in verdict.facts.items()}
    if verdict.hypothesis.evidence == "parameters" and "percent" in verdict.facts:
        facts["percent"] = numbers.plain_percent(round(verdict.facts["percent"], 2))  # "fewer" has the sign already
    facts |= _named_quality(verdict.hypothesis, language)
    facts |= {} if verdict.p is None else _tested(findings, verdict, facts, language)
    return say_or_code(language, f"reason.{verdict.reason}", facts, study=findings.study)


def _tested(findings: Findings, verdict: Verdict, facts: dict[str, str], language: Language) -> dict[str, str]:
    """Of a claim with a p-value: direction and size of the effect, where it lies to the bound, and the one p-value that
    decides. The others stand in analysis_results.json."""
    kind, hypothesis = KINDS[verdict.hypothesis.kind], verdict.hypothesis
    p, rates = _deciding_p(findings, verdict, language), _rates(findings, verdict, language)
    p = say(language, "p.and_rates", p=p, rates=rates) if rates else p
    parts = {"effect": _effect(findings, verdict, language), "p": p}
    found = kind.found if hypothesis.margin else kind.found_without_margin
    if verdict.doubt == "few" or (verdict.doubt and verdict.sign_test):
        what = "signs" if verdict.sign_test else "sizes" if verdict.trend else "pairs"
        return parts | {"found": say(language, f"doubt.{verdict.doubt}.{what}", **facts)}
    phrase = next((each for outcome, each in found.items() if outcome == verdict.regardless), None)
    margin = quality.margin(hypothesis.quality, hypothesis.margin, language)
    return parts | ({"found": in_words(phrase, language).format(margin=margin)} if phrase else {})


def _effect(findings: Findings, verdict: Verdict, language: Language) -> str:
    """In the direction in which it goes: a cost, or what is gained."""
    hypothesis, trend = verdict.hypothesis, verdict.trend
    slope = trend.slopes.get(trend.per) if trend else None
    measured = slope or verdict.difference
    middle = slope.slope if slope else verdict.difference.mean if verdict.difference else None
    if measured is None or middle is None:
        return ""
    is_cost = middle >= 0
    write = partial(quality.in_direction, hypothesis.quality, is_cost=is_cost)
    ends = [write(end) for end in (measured.low, measured.high) if end is not None]
    ends = ends if is_cost else ends[::-1]
    sides = [hypothesis.treatment, hypothesis.control]
    if hypothesis.against is not None or trend:  # then both sizes, or the sizes, are named
        sides = [family_of(findings.study, arm) for arm in sides]
    code = f"effect.{'slope' if trend else 'contrast' if hypothesis.against else 'difference'}"
    return say_of(
        findings.study,
        language,
        f"{code}.{'cost' if is_cost else 'gain'}",
        treatment=label_of(findings, sides[0], language),
        control=label_of(findings, sides[1], language),
        amount=quality.amount(hypothesis.quality, write(middle), language),
        interval=say(language, "effect.interval", low=ends[0], high=ends[1]) if ends else "",
        per=say(language, f"per.{trend.per}") if trend else "",
        **_named_quality(hypothesis, language),
    )


def _deciding_p(findings: Findings, verdict: Verdict, language: Language) -> str:
    """Of Holm's correction it is said over how many claims it is. A refutation has a test of its own."""
    claims = sum(each.confirmatory for each in findings.study.family)
    p: float | None
    if verdict.refutation_p is not None:
        p, code = verdict.refutation_p, "p.against"
    elif verdict.p_adjusted is not None and claims > 1:
        p, code = verdict.p_adjusted, "p.over_claims"
    else:
        p, code = verdict.p if verdict.sequential_p is None else verdict.sequential_p, "p.alone"
    written = numbers.probability(p)
    return say(language, code, p=written if written.startswith("<") else f"= {written}", claims=claims)


def _rates(findings: Findings, verdict: Verdict, language: Language) -> str:
    """What was done about the rates of its arms."""
    rates, measure = verdict.rates, verdict.hypothesis.quality
    if rates is None:
        return ""
    facts = {key: _fact(findings, measure, key, value, language) for key, value in rates.facts.items()}
    if verdict.allowance is not None:
        facts["allowance"] = quality.allowance(measure, verdict.allowance, language)
    return say(language, f"rates.{rates.code}", **facts)


def _rates_numbers(findings: Findings, verdict: Verdict, language: Language) -> list[tuple[str, str]]:
    """By arm."""
    if verdict.rates is None or not verdict.rates.arms:
        return []
    measure, comma = verdict.hypothesis.quality, say(language, "list_comma")
    each = [
        f"{label_of(findings, arm, language)} {quality.allowance(measure, nats, language)}"
        for arm, nats in verdict.rates.arms.items()
    ]
    return [(say(language, "box.rates"), comma.join(each))]


def reservations(findings: Findings, verdict: Verdict, language: Language) -> list[str]:
    """What limits a verdict, a sentence each."""
    measure, found = verdict.hypothesis.quality, []
    for code, known in verdict.reservations:
        facts = {key: _fact(findings, measure, key, value, language) for key, value in known.items()}
        named = _named_quality(verdict.hypothesis, language)
        found.append(say_or_code(language, f"reservation.{code}", facts | named, study=findings.study))
    return found


def outcome_in_short(verdict: Verdict, language: Language) -> str:
    """The outcome with its reservations in a few words: supported (exploratory)."""
    outcome = say(language, f"outcome.{verdict.outcome}")
    codes = [f"reservation.{code}.short" for code, _ in verdict.reservations]
    if not codes:
        return outcome
    short = say(language, "list_semicolon").join(say_or_code(language, code, {}) for code in codes)
    return say(language, "outcome.reserved", outcome=outcome, reservations=short)


def _named_quality(hypothesis: Hypothesis, language: Language) -> dict[str, str]:
    """What is compared, where a claim is about one difficulty, and the sizes of a contrast."""
    sizes = {"size": str(hypothesis.size), "against": hypothesis.against} if hypothesis.against else {}
    if hypothesis.difficulty is None or hypothesis.evidence not in MEASURED:
        return sizes
    name = in_words(hypothesis.quality.name, language)
    return sizes | {"quality": say(language, "quality.at_difficulty", quality=name, difficulty=hypothesis.difficulty)}


def _fact(findings: Findings, measure: Measure, key: str, value: Any, language: Language) -> str:
    """Numbers by what their names say they are."""
    if isinstance(value, dict):
        by_state = (
            say(language, "seeds_by_state", state=say(language, f"state.{state}"), seeds=seed_list(seeds, language))
            for state, seeds in value.items()
        )
        return say(language, "list_semicolon").join(by_state) or say(language, "nothing_missing")
    if key == "arms":
        return say(language, "list_comma").join(label_of(findings, arm, language) for arm in value)
    if isinstance(value, list):
        return say(language, "list_comma").join(map(str, value)) or say(language, "nobody")
    if key == "margin":
        return quality.margin(measure, value, language)
    if key in ("difference", "median", "bound", "slope"):
        return quality.shown_with_unit(measure, value, language)
    if key in ("reached", "floor"):
        return quality.value(measure, value)
    if key in ("changes", "differences"):
        return short_digests(value.replace(NOW, say(language, "differences.now")))
    if key == "percent":
        return numbers.percent(value)
    if key == "share":
        return numbers.plain_percent(100 * value)
    if key == "per":
        return say(language, f"per.{value}")
    return numbers.whole(value) if isinstance(value, int) else str(value)


def seed_list(seeds: list[int], language: Language) -> str:
    """1, 2, 5–9."""
    parts: list[str] = []
    ordered = sorted(set(seeds))
    while ordered:
        last = 0
        while last + 1 < len(ordered) and ordered[last + 1] == ordered[last] + 1:
            last += 1
        parts += [f"{ordered[0]}–{ordered[last]}"] if last > 1 else list(map(str, ordered[: last + 1]))
        ordered = ordered[last + 1 :]
    return say(language, "list_comma").join(parts)


# ---- The numbers ---------------------------------------------------------------------------------------------------


def _criterion(findings: Findings, verdict: Verdict, language: Language) -> list[tuple[str, str]]:
    hypothesis = verdict.hypothesis
    code = f"criterion.{hypothesis.kind}"
    if hypothesis.margin and f"{code}.with_margin" in WORDS:
        code += ".with_margin"
    if hypothesis.least_fewer is not None:
        code += ".of_fewer"
    sides = [hypothesis.treatment, hypothesis.control]
    if hypothesis.against is not None:  # then the sentence names both sizes
        sides = [family_of(findings.study, arm) for arm in sides]
    sentence = say_of(
        findings.study,
        language,
        code,
        treatment=label_of(findings, sides[0], language),
        control=label_of(findings, sides[1], language),
        margin=quality.margin(hypothesis.quality, hypothesis.margin, language),
        least_frozen=numbers.whole(hypothesis.least_frozen),
        least_fewer=numbers.whole(hypothesis.least_fewer),
        solved=solved_phrase(hypothesis.criterion, language) if hypothesis.criterion else "",
        per=say(language, f"per.{verdict.trend.per}") if verdict.trend else "",
        **_named_quality(hypothesis, language),
    )
    found = [(say(language, "box.criterion"), sentence)]
    if hypothesis.fails_when:
        found.append((say(language, "box.fails_when"), in_language(hypothesis.fails_when, language)))
    return found


def _look(findings: Findings, verdict: Verdict, language: Language) -> list[tuple[str, str]]:
    """At which look it was decided, or where it stands."""
    look = verdict.look
    if look is None:
        return []
    is_last = look.number == len(findings.study.looks)
    code = "settled" if look.is_settled else "last" if is_last else "open" if look.number else "before"
    facts = {"seeds": look.seeds, "planned": len(findings.study.seeds)}
    return [(say(language, "box.look"), say(language, f"box.look.{code}", **facts))]


def solved_phrase(criterion: Criterion, language: Language) -> str:
    """When a run counts as solved."""
    code = "solved.mean" if criterion.difficulty is None else "solved.at_difficulty"
    return say(language, code, level=numbers.plain_percent(100 * criterion.level), difficulty=criterion.difficulty)


def _numbers(findings: Findings, verdict: Verdict, language: Language) -> list[tuple[str, str]]:
    match verdict.hypothesis.evidence:
        case "parameters":
            return _parameter_numbers(findings, verdict.hypothesis, language)
        case "speed":
            if (ratio := verdict.ratio) is None:
                return []
            facts = {"ratio": numbers.ratio(ratio.middle), "blocks": ratio.blocks}
            interval = numbers.interval(ratio.low, ratio.high, numbers.ratio)
            return [(say(language, "box.ratio"), say(language, "box.ratio_value", interval=interval, **facts))]
        case "quality" | "contrast":
            done = len(verdict.difference.seeds) if verdict.difference else 0
            rates = _rates_numbers(findings, verdict, language)
            return [*_quality_numbers(findings, verdict, language), *rates, _seeds_number(findings, done, language)]
        case "scale":
            return _scale_numbers(findings, verdict, language)
        case "solved_seeds" | "steps_to_solve":
            pairs = verdict.sign_test or verdict.pairs_so_far
            if pairs is None:
                return []
            counts = {side: len(getattr(pairs, side)) for side in ("ahead", "behind", "tied", "neither")}
            shown = say(language, f"box.pairs.{verdict.hypothesis.evidence}", **counts)
            return [(say(language, "box.pairs"), shown), _seeds_number(findings, pairs.pairs, language)]
        case unknown:
            assert_never(unknown)


def _floor(findings: Findings, hypothesis: Hypothesis, language: Language) -> list[tuple[str, str]]:
    """Of what a claim compares: that of its control."""
    if hypothesis.evidence not in MEASURED:
        return []
    control, *_ = (control for _, control in arms_compared(findings.study, hypothesis))
    floor = findings.at_all_sizes[control].floor
    said = quality.floor(findings.study, floor, language, difficulty=hypothesis.difficulty)
    return [(say(language, "box.floor"), said)]


def _scale_numbers(findings: Findings, verdict: Verdict, language: Language) -> list[tuple[str, str]]:
    trend, measure, found = verdict.trend, verdict.hypothesis.quality, []
    slope = trend.slopes.get(trend.per) if trend else None
    if trend is None:
        return []
    if slope is not None:
        middle = quality.difference_with_unit(measure, slope.slope, language)
        interval = quality.interval(measure, slope)
        found.append((say(language, "box.slope"), say(language, "interval_of", middle=middle, interval=interval)))
    if verdict.margin:
        found.append((say(language, "box.margin"), quality.margin(measure, verdict.hypothesis.margin, language)))
    whole = sum(point.is_whole for point in trend.points)
    sizes = say(language, "list_comma").join(point.size for point in trend.points)
    found.append((say(language, "box.sizes"), say(language, "box.sizes_value", done=whole, sizes=sizes)))
    return found


def _quality_numbers(findings: Findings, verdict: Verdict, language: Language) -> list[tuple[str, str]]:
    hypothesis, difference, found = verdict.hypothesis, verdict.difference, []
    measure, name = hypothesis.quality, "box.contrast" if hypothesis.against else "box.difference"
    if difference is not None and difference.mean is not None:
        middle = quality.difference_with_unit(measure, difference.mean, language)
        code = "interval_of" if verdict.look is None else "interval_of.looks"
        shown = _with_interval(middle, difference, quality.interval(measure, difference), language, code=code)
        if measure.scale.is_logarithmic:
            middle = f"{quality.logarithm(measure, difference.mean)} nats"
            compared = quality.interval(measure, difference, quality.logarithm)
            in_nats = _with_interval(middle, difference, compared, language, code=code)
            found.append((say(language, name), in_nats))
            found.append((say_of(findings.study, language, "box.shown_difference"), shown))
        else:
            found.append((say(language, name), shown))
    if verdict.margin:
        stated = quality.margin(measure, hypothesis.margin, language)
        if measure.scale.is_logarithmic:
            stated = say(language, "box.margin_value", percent=stated, nats=f"{verdict.margin:.4f}")
        found.append((say(language, "box.margin"), stated))
    if verdict.mcnemar:
        values = ((pair.seed, numbers.probability(pair.p)) for pair in verdict.mcnemar)
        said = (say(language, "box.mcnemar_seed", seed=seed, p=p) for seed, p in values)
        joined = say(language, "list_semicolon").join(said)
        found.append((say(language, "box.mcnemar"), say(language, "box.mcnemar_value", values=joined)))
    return found


def _seeds_number(findings: Findings, done: int, language: Language) -> tuple[str, str]:
    return say(language, "box.seeds"), say(language, "box.seeds_value", done=done, planned=len(findings.study.seeds))


def _with_interval(
    middle: str, difference: PairedDifference, interval: str, language: Language, *, code: str = "interval_of"
) -> str:
    return middle if difference.low is None else say(language, code, middle=middle, interval=interval)


def _parameter_numbers(findings: Findings, hypothesis: Hypothesis, language: Language) -> list[tuple[str, str]]:
    treatment, control = findings.at_all_sizes[hypothesis.treatment], findings.at_all_sizes[hypothesis.control]
    change = 100 * (treatment.trainable / control.trainable - 1)
    counts = {"treatment": numbers.whole(treatment.trainable), "control": numbers.whole(control.trainable)}
    found = [
        (say(language, "box.parameters"), say(language, "box.against", **counts, percent=numbers.percent(change))),
        (say(language, "box.frozen"), numbers.whole(treatment.frozen)),
    ]
    if treatment.implied:
        found.append((say(language, "box.implied"), numbers.whole(treatment.implied)))
    return found


# ---- Remarks -------------------------------------------------------------------------------------------------------


def _remarks(findings: Findings, verdict: Verdict, language: Language) -> list[str]:
    compared = {verdict.hypothesis.treatment, verdict.hypothesis.control} - set(verdict.facts.get("arms", []))
    at_floor = [facts["arm"] for code, facts in findings.notes if code == "at_floor" and facts["arm"] in compared]
    labels = [label_of(findings, arm, language) for arm in at_floor]
    found = [say_of(findings.study, language, "box.at_floor", arm=label) for label in labels]
    if verdict.ratio is not None and verdict.ratio.is_implausible:
        found.append(implausible_sentence(findings, verdict.hypothesis.treatment, verdict.ratio, language))
    if verdict.outcome == "confounded":
        outcome = say(language, f"outcome.{verdict.regardless}")
        found.append(say(language, "box.regardless", outcome=outcome))
        for confound in verdict.confounds:
            if confound.explained is None and confound.key != SEEDS:
                treatment, control = sides_of(findings, verdict.hypothesis, confound, language)
                one = say(language, "confounds.one", key=confound.key, treatment=treatment, control=control)
                found.append(say(language, "box.confound", confound=one))
    return found


def implausible_sentence(findings: Findings, arm: str, ratio: Ratio, language: Language) -> str:
    interval = numbers.interval(ratio.low, ratio.high, numbers.ratio)
    shown = {"ratio": numbers.ratio(ratio.middle), "smallest": numbers.ratio(ratio.smallest)}
    return say(language, "speed.implausible", arm=label_of(findings, arm, language), interval=interval, **shown)


def sides_of(findings: Findings, hypothesis: Hypothesis, confound: Confound, language: Language) -> tuple[str, str]:
    """What differs between treatment and control, in a language where there are words for it."""
    if confound.key not in OPTIONS:
        return short_digests(confound.treatment), short_digests(confound.control)
    treatment, control = (declared_model(findings.study, arm) for arm in (hypothesis.treatment, hypothesis.control))
    place = LANGUAGES.index(language)
    return said_of(treatment, confound.key, place), said_of(control, confound.key, place)


def short_digests(text: str) -> str:
    """Whole digests stand in analysis_results.json."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b", r"\1…", text)


# ---- As text -------------------------------------------------------------------------------------------------------


def as_text(findings: Findings, language: Language, *, first: Iterable[str] = ()) -> str:
    """`first` is what must be known before any of them."""
    summary = outcome_summary(findings, language) if findings.verdicts else say(language, "verdicts.none")
    parts = ["\n".join([findings.study.name, *map(one_line, first), summary])]
    for verdict in findings.verdicts:
        box = verdict_box(findings, verdict, language)
        claim = f"{one_line(box.claim)} {one_line(box.scope)}"
        lines = [f"{box.name}  [{outcome_in_short(verdict, language)}]  {claim}", f"    {one_line(box.sentence)}"]
        lines += [f"    {one_line(reservation)}" for reservation in box.reservations]
        lines += [f"    {name}: {one_line(value)}" for name, value in box.numbers]
        lines += [f"    {one_line(remark)}" for remark in box.remarks]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
