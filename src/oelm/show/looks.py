"""The section of a study with looks: what was decided when, at what error rate, what it saved, and what comes next."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

from oelm.analysis.findings import Findings
from oelm.analysis.looks import Cost, cost_of_next_look, cost_saved, seeds_saved
from oelm.analysis.spending import Levels, spent, t_levels, union_levels
from oelm.core.intervals import LEVEL
from oelm.show import numbers
from oelm.show.article import Block, Bullets, Heading, Paragraph, Table
from oelm.show.tables import label_of, table
from oelm.show.words import say
from oelm.study.claims.kinds import SOLVING
from oelm.study.declaration import Language, Study
from oelm.study.kept_looks import Look, open_claims, seeds_of_arm


def looks(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    study = findings.study
    if not study.looks:
        return
    yield Heading(say(language, "heading.looks"))
    listed = say(language, "list_comma").join(map(str, study.looks))
    yield Paragraph(say(language, "looks.sentence", looks=listed))
    yield _table(findings, language)
    if unstored := [str(look.number) for look in findings.looks if look.made is None]:
        names = say(language, "list_comma").join(unstored)
        yield Paragraph(say(language, "looks.unstored", looks=names, study=study.name), tone="note")
    yield Bullets([*what_is_next(findings, language), *_saved(findings, language)])
    yield Paragraph(say(language, "looks.method"), tone="note")


def _table(findings: Findings, language: Language) -> Table:
    study, taken = findings.study, {look.number: look for look in findings.looks}
    untaken = "looks.not_taken" if open_claims(study, findings.looks) else "looks.not_needed"
    by_test = levels_by_test(study)
    rows = []
    for number, seeds in enumerate(study.looks, start=1):
        look = taken.get(number)
        rows.append([
            say(language, "looks.name", look=number, of=len(study.looks)),
            _found(look, language, settled=True),
            _found(look, language, settled=False),
            (look.made or say(language, "looks.not_stored")) if look else say(language, untaken),
            str(seeds),
            numbers.probability(error_spent(study, seeds)),
            *(numbers.probability(levels[number - 1].at(LEVEL)) for levels in by_test.values()),
        ])  # fmt: skip
    columns = ("look", "decided", "open", "taken", "seeds", "spent", *by_test)
    return table(findings, language, columns, rows, say(language, "looks.table"), words=4)


def levels_by_test(study: Study) -> dict[str, tuple[Levels, ...]]:
    """Of the tests by which the study's claims are decided, under the names of their columns."""
    looks, solving = tuple(study.looks), [each.evidence in SOLVING for each in study.paired_claims]
    of_t = {} if all(solving) else {"level.t": t_levels(looks)}
    return of_t | ({"level.signs": union_levels(looks)} if any(solving) else {})


def error_spent(study: Study, seeds: int) -> float:
    """Up to a look at so many of them."""
    return spent(LEVEL, seeds / study.looks[-1])


def _found(look: Look | None, language: Language, *, settled: bool) -> str:
    """The claims that a look settled, with their outcomes, or those that it left open."""
    claims = look.claims.items() if look else ()
    texts = [
        say(language, "looks.claim", claim=name, outcome=say(language, f"outcome.{each.verdict.outcome}"))
        if settled
        else name
        for name, each in claims
        if each.is_settled == settled
    ]
    return say(language, "list_semicolon").join(texts) or numbers.NONE


def what_is_next(findings: Findings, language: Language) -> Iterator[str]:
    study, taken = findings.study, findings.looks
    names = say(language, "list_comma").join(each.name for each in open_claims(study, taken))
    if not names:
        yield say(language, "looks.all_decided")
    elif len(taken) == len(study.looks):
        yield say(language, "looks.all_taken", claims=names)
    else:
        cost = cost_of_next_look(findings.plan, findings.at_all_sizes, taken)
        name = say(language, "looks.name", look=len(taken) + 1, of=len(study.looks))
        facts = {"look": name, "seeds": study.looks[len(taken)], "claims": names, "runs": cost.runs}
        code = "looks.next" if cost.seconds is None else "looks.next.timed"
        yield say(language, code, **facts, flops=numbers.flops(cost.flops), time=numbers.duration(cost.seconds))


@dataclass(frozen=True)
class Saved:
    """By looks, of the final runs."""

    cost: Cost
    planned: int  # runs, if there were no looks
    percent: float  # of their arithmetic


def runs_saved(findings: Findings) -> Saved:
    plan, arms = findings.plan, findings.at_all_sizes
    cost, seeds = cost_saved(plan, arms, findings.looks), len(plan.study.seeds)
    arithmetic = sum(arms[arm].flops * seeds for arm in plan.study.arms)
    return Saved(cost, len(plan.study.arms) * seeds, round(100 * cost.flops / arithmetic, 1))


def _saved(findings: Findings, language: Language) -> Iterator[str]:
    plan, taken, saved = findings.plan, findings.looks, runs_saved(findings)
    if not saved.cost.runs:
        yield say(language, "looks.nothing_saved")
        return
    share, flops = numbers.plain_percent(saved.percent), numbers.flops(saved.cost.flops)
    yield say(language, "looks.saved", runs=saved.cost.runs, planned=saved.planned, share=share, flops=flops)
    for arm, seeds in seeds_saved(plan, taken).items():
        at = seeds_of_arm(plan.study, taken, arm).decided_at
        name = say(language, "looks.name", look=at, of=len(plan.study.looks))
        if seeds:
            yield say(language, "looks.arm", arm=label_of(findings, arm, language), look=name, seeds=len(seeds))
