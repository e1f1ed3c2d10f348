"""What a report says, in the order a reader needs it: the answer, its numbers, then everything they rest on."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any

from oelm.analysis.findings import NOT_FITTED, Findings, Verdict
from oelm.analysis.statistics import LEAST_INFORMATIVE
from oelm.core.measures import LOSS
from oelm.models.heads.kinds import KINDS as HEAD_KINDS
from oelm.show import closing, numbers, quality, tables, verdicts
from oelm.show.arms_in_words import described_arm, note_sentence
from oelm.show.article import (
    Article,
    Block,
    Bullets,
    Heading,
    Paragraph,
    Picture,
    Table,
    Tone,
    numbered,
    words_then_numbers,
)
from oelm.show.beside import beside
from oelm.show.cautions import cautions
from oelm.show.draws import draws
from oelm.show.examples import examples
from oelm.show.looks import looks
from oelm.show.probes import probes, tuning_table
from oelm.show.rates import curves_table, extended_lines, rounds_table, tuning_steps
from oelm.show.scale import carried_lines, scale
from oelm.show.scope import scope_line
from oelm.show.tables import counts_at_rest, has_implied, label_of
from oelm.show.words import say, say_of, say_or_code
from oelm.study.claims.kinds import MEASURED, SOLVING
from oelm.study.declaration import Language, Study, Tuning, in_language
from oelm.study.scaled import at_main_size
from oelm.study.sizes import LEAST_FOR_A_LINE

Section = Callable[[Findings, Language, Container[str]], Iterator[Block]]


def article_of(findings: Findings, language: Language, *, figures: Container[str]) -> Article:
    """The whole report; `figures` are the names of those that could be drawn."""
    return numbered(unnumbered_article(findings, language, figures=figures))


def unnumbered_article(findings: Findings, language: Language, *, figures: Container[str]) -> Article:
    study = findings.study
    blocks: list[Block] = [*_completeness(findings, language), *_cautions(findings, language)]
    for section in _sections(findings):
        blocks += section(findings, language, figures)
    return Article(
        language=language,
        title=study.name,
        subtitle=in_language(study.question, language),
        kicker=say(language, "kicker"),
        blocks=blocks,
    )


def _sections(findings: Findings) -> list[Section]:
    return _SECTIONS if has_results(findings) else _SECTIONS_WITHOUT_RESULTS


def has_results(findings: Findings) -> bool:
    """Whether any run, of the grid or of the seeds, has come to an end."""
    return any(run.state in ("finished", "diverged") for run in findings.plan.runs)


# ---- First: what is missing ----------------------------------------------------------------------------------------


def _completeness(findings: Findings, language: Language) -> Iterator[Block]:
    lines = list(missing_lines(findings, language))
    if lines:
        yield Bullets(lines, tone="warning", title=say(language, "partial.title"))


def missing_lines(findings: Findings, language: Language) -> Iterator[str]:
    study, plan = findings.study, findings.plan
    finished = tables.finished_final_runs(findings)
    if not any(run.stored for run in plan.runs):
        code = "partial.others_only" if any(cautions(findings, language)) else "partial.empty"
        yield say(language, code, planned=plan.expected_final_runs, study=study.name)
        return
    if finished == plan.expected_final_runs:
        return
    yield say(language, "partial.final", finished=finished, planned=plan.expected_final_runs)
    if not plan.is_tuned:
        done = sum(run.loss is not None for run in plan.tuning)
        yield say(language, "partial.tuning", finished=done, planned=len(plan.tuning))
    else:
        yield from _missing_by_arm(findings, language)
    yield say(language, "partial.numbers.looks" if study.looks else "partial.numbers")


def _cautions(findings: Findings, language: Language) -> Iterator[Block]:
    lines = list(cautions(findings, language))
    if lines:
        yield Bullets(lines, tone="warning", title=say(language, "caution.title"))


def _missing_by_arm(findings: Findings, language: Language) -> Iterator[str]:
    for arm, summary in findings.at_all_sizes.items():
        for state, seeds in summary.states.items():
            if state not in ("finished", "not_needed"):
                yield say(
                    language,
                    "partial.arm" if len(seeds) == 1 else "partial.arm.seeds",
                    arm=label_of(findings, arm, language),
                    seeds=verdicts.seed_list(seeds, language),
                    state=say(language, f"state.{state}"),
                )


# ---- Verdicts and the table ----------------------------------------------------------------------------------------


def _verdicts(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.verdicts"))
    if not findings.verdicts:
        yield Paragraph(say(language, "verdicts.none"))
        return
    yield Paragraph(verdicts.outcome_summary(findings, language))
    for verdict in findings.verdicts:
        yield verdicts.verdict_box(findings, verdict, language)
    yield from _methods(findings, language)


def _methods(findings: Findings, language: Language) -> Iterator[Block]:
    """How the claims that pairs decide were tested; all their p-values are one family."""
    study = findings.study
    family = [each.evidence for each in study.family if each.confirmatory]
    if any(each in MEASURED for each in family):
        method = say_of(study, language, f"verdicts.method.{study.measure.test}", family=len(family))
        if any(_is_without_spread(verdict) for verdict in findings.verdicts):
            method += say(language, "verdicts.method.without_spread")
        method += say(language, "verdicts.mcnemar") if study.measure.from_predictions else ""
        method += (
            say(language, "verdicts.method.rates")
            if any(each.rates and each.rates.arms for each in findings.verdicts)
            else ""
        )
        yield Paragraph(method, tone="note")
    if "scale" in family:
        yield Paragraph(say_of(study, language, "verdicts.method.scale", least=LEAST_FOR_A_LINE), tone="note")
    if any(each.evidence in SOLVING for each in study.hypotheses):
        facts = {"family": len(family), "least": LEAST_INFORMATIVE}
        yield Paragraph(say_of(study, language, "verdicts.method.solving", **facts), tone="note")
    if study.looks:
        yield Paragraph(say(language, "verdicts.method.looks"), tone="note")


def _is_without_spread(verdict: Verdict) -> bool:
    return verdict.p is not None and verdict.difference is not None and not verdict.difference.standard_deviation


def _table(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.table"))
    if findings.scale is not None:
        yield Paragraph(say(language, "table.main_size", size=findings.study.main_size), tone="note")
    yield from _on_learning_rates(findings, language)
    yield tables.quality_table(findings, language)
    yield tables.cost_table(findings, language)
    yield from _picture(findings, findings.study.measure.figures.final, language, figures, code="final")


def _on_learning_rates(findings: Findings, language: Language) -> Iterator[Block]:
    """Whether the arms were tuned: the first thing a referee asks."""
    study = findings.study
    comma = say(language, "list_comma")
    if study.tuning is not None:
        keys = comma.join(
            f"{key} = {comma.join(numbers.learning_rate(value) for value in values)}"
            for key, values in (findings.plan.grids.get(study.baseline) or study.tuning.grid).items()
        )
        yield Paragraph(_on_the_grid(study, keys, language) + _on_the_rates(study.tuning, language))
    rates = {arm: summary.learning_rate for arm, summary in findings.arms.items()}
    if not study.learning_rate_is_tuned and len(set(rates.values())) > 1:
        listed = comma.join(
            f"{label_of(findings, arm, language)} {numbers.learning_rate(rate)}" for arm, rate in rates.items()
        )
        yield Paragraph(say(language, "table.fixed_learning_rates", values=listed), tone="warning")
    for code, facts in findings.notes:
        if code in ("fixed_learning_rate", "few_seeds", "at_floor"):
            tone: Tone = "warning" if code == "at_floor" else "note"
            yield Paragraph(note_sentence(findings, code, facts, language), tone=tone)


def _on_the_grid(study: Study, keys: str, language: Language) -> str:
    """What was tuned, and by what it was judged."""
    criterion = study.tuning.criterion if study.tuning else None
    if criterion is not None:
        return say(language, "table.tuned_by_solving", keys=keys, solved=verdicts.solved_phrase(criterion, language))
    return say_of(study, language, "table.tuned" if study.learning_rate_is_tuned else "table.other_tuned", keys=keys)


def _on_the_rates(tuning: Tuning, language: Language) -> str:
    halving = say(language, "table.halving", margin=f"{tuning.margin:g}") if tuning.method == "halving" else ""
    return halving + (say(language, "table.fitted") if tuning.choose == "fitted" else "")


def _picture(
    findings: Findings, name: str, language: Language, figures: Container[str], *, code: str = "", **facts: object
) -> Iterator[Picture]:
    """If it could be drawn. Its caption has the code of its own name, or of what it shows whatever the measure is."""
    if name in figures:
        caption = say_of(findings.study, language, f"caption.{code or name}", **facts)
        is_of_quality = (code or name) in _OF_QUALITY
        yield Picture(name, caption + (tables.floor_sentence(findings, language) if is_of_quality else ""))


# Codes of pictures of what is compared.
_OF_QUALITY = ("final", "curve", "by_parameters", "target", "differences", "decomposition")


def _with_scope(findings: Findings, code: str, language: Language) -> str:
    """A table's caption: no number without the size and the training it is about."""
    return say(language, code, scope=scope_line(findings.scope, language))


# ---- What happened -------------------------------------------------------------------------------------------------


def _curves(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.curves"))
    measure = findings.study.measure
    names = {measure.figures.curve: "curve"} | ({} if measure is LOSS else {"validation_loss": ""})
    if not any(name in figures for name in names):
        yield Paragraph(say(language, "curves.none"))
    for name, code in (names | {"training_loss": "", "learning_rate": ""}).items():
        yield from _picture(findings, name, language, figures, code=code)


def _heads(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    """Where runs recorded what their heads look at."""
    scored = {arm: summary.heads for arm, summary in findings.arms.items() if summary.heads is not None}
    if not scored:
        return
    yield Heading(say(language, "heading.heads"))
    yield Paragraph(say(language, "heads.sentence"))
    rows = [
        [
            label_of(findings, arm, language),
            str(heads.seeds),
            *(numbers.score(heads.strongest[kind].mean[-1]) for kind in HEAD_KINDS),
        ]
        for arm, heads in scored.items()
    ]
    header = [
        say(language, "column.arm"),
        say(language, "column.seeds"),
        *(say(language, f"head.{kind}") for kind in HEAD_KINDS),
    ]
    yield Table(_with_scope(findings, "heads.table", language), header, rows, words_then_numbers(len(header)))
    yield from _picture(findings, "heads_forming", language, figures)
    yield from _picture(findings, "head_scores", language, figures)


def _parameters(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.parameters"))
    yield _arms_table(findings, language)
    yield from _picture(findings, "parameter_distribution", language, figures)
    by_parameters = findings.study.measure.figures.by_parameters
    yield from _picture(findings, by_parameters, language, figures, code="by_parameters")


def _arms_table(findings: Findings, language: Language) -> Table:
    baseline = findings.arms[findings.study.baseline].trainable
    rows = []
    for arm, summary in findings.arms.items():
        fewer = (
            numbers.percent(100 * (summary.trainable / baseline - 1)) if summary.trainable != baseline else numbers.NONE
        )
        counts = [numbers.whole(summary.total), numbers.whole(summary.trainable), fewer, numbers.whole(summary.frozen)]
        if has_implied(findings):
            counts.append(numbers.whole(summary.implied))
        rows.append([label_of(findings, arm, language), described_arm(findings, arm, language), *counts])
    columns = ("arm", "treated", "total", "trainable", "against_baseline", *counts_at_rest(findings))
    header = [say(language, f"column.{name}") for name in columns]
    return Table(
        _with_scope(findings, "parameters.table", language), header, rows, words_then_numbers(len(header), words=2)
    )


def _speed(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.speed"))
    yield from _on_the_bench(findings, language)
    ratios = {arm: summary.ratio for arm, summary in findings.arms.items() if summary.ratio}
    for arm, ratio in ratios.items():
        if ratio.is_implausible:
            yield Paragraph(verdicts.implausible_sentence(findings, arm, ratio, language), tone="warning")
    if any(summary.seconds_per_step for summary in findings.arms.values()):
        yield _speed_table(findings, language, with_ratio=bool(ratios))
    baseline = label_of(findings, findings.study.baseline, language)
    yield from _picture(findings, "speed", language, figures, baseline=baseline)


def _on_the_bench(findings: Findings, language: Language) -> Iterator[Paragraph]:
    """How the ratios were measured, or why there are none."""
    bench = findings.provenance.get("bench")
    if bench is None:
        yield Paragraph(say(language, "speed.no_bench", study=findings.study.name), tone="note")
        return
    for code, facts in findings.notes:
        if code == "bench_other_config":
            yield Paragraph(note_sentence(findings, code, facts, language), tone="warning")
    if bench["fits"]:
        yield _on_its_blocks(findings, bench, language)


def _on_its_blocks(findings: Findings, bench: dict[str, Any], language: Language) -> Paragraph:
    control, counts = bench["control"], {"blocks": bench["blocks"], "quiet": bench["undisturbed"]}
    if bench["busy"] or control is None:
        return Paragraph(say(language, "speed.busy", study=findings.study.name, **counts), tone="warning")
    baseline = bench["baseline"]
    facts = {
        "blocks": counts["quiet"],
        "baseline": label_of(findings, baseline, language) if baseline in findings.arms else baseline,
        "control": numbers.ratio(control.middle),
        "interval": numbers.interval(control.low, control.high, numbers.ratio),
    }
    return Paragraph(say(language, "speed.bench", **facts))


def _speed_table(findings: Findings, language: Language, *, with_ratio: bool) -> Table:
    columns = ["arm", "steps_per_hour", "seconds_per_step", *(["ratio", "interval"] if with_ratio else [])]
    rows = []
    for arm, summary in findings.arms.items():
        per_step = summary.seconds_per_step
        row = [label_of(findings, arm, language), numbers.whole(3600 / per_step if per_step else None)]
        row.append(numbers.seconds(per_step, column=[each.seconds_per_step for each in findings.arms.values()]))
        if with_ratio:
            ratio = summary.ratio
            row.append(numbers.ratio(ratio.middle if ratio else None))
            row.append(numbers.interval(ratio.low, ratio.high, numbers.ratio) if ratio else numbers.NONE)
        rows.append(row)
    caption = _with_scope(findings, "speed.table" if with_ratio else "speed.table_no_bench", language)
    header = [say(language, f"column.{name}") for name in columns]
    return Table(caption, header, rows, words_then_numbers(len(columns)))


def _target(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    if not findings.study.measure.has_target:
        return
    yield Heading(say(language, "heading.target"))
    baseline = label_of(findings, findings.study.baseline, language)
    if findings.target_perplexity is None:
        yield Paragraph(say(language, "target.none", baseline=baseline))
        return
    target = numbers.perplexity(findings.target_perplexity)
    percent = numbers.plain_percent(findings.study.target_percent)
    yield Paragraph(say(language, "target.sentence", percent=percent, baseline=baseline, target=target))
    columns = ("arm", "reached_by", "steps", "tokens", "time", "flops")
    arithmetic = [each.reached.flops for each in findings.arms.values() if each.reached is not None]
    rows = []
    for arm, summary in findings.arms.items():
        reached, name = summary.reached, label_of(findings, arm, language)
        if reached is None:
            rows.append([name, f"0/{len(summary.losses)}", *[numbers.NONE] * 4])
        else:
            rows.append([
                name, f"{reached.seeds}/{len(summary.losses)}", numbers.whole(reached.steps),
                numbers.whole(reached.tokens), numbers.duration(reached.seconds),
                numbers.flops(reached.flops, column=arithmetic),
            ])  # fmt: skip
    header = [say(language, f"column.{name}") for name in columns]
    caption = _with_scope(findings, "target.table", language) + tables.floor_sentence(findings, language)
    yield Table(caption, header, rows, words_then_numbers(6))
    yield from _picture(findings, "target", language, figures, target=target)


def _tuning(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.tuning"))
    study, plan = findings.study, findings.plan
    if study.tuning is None:
        yield Paragraph(say(language, "tuning.none"))
        return
    if not plan.choices:
        yield Paragraph(say(language, "tuning.open"))
        yield from rounds_table(findings, study.tuning, language)
        return
    lines = extended_lines(findings, study.tuning, language)
    lines += [
        note_sentence(findings, code, facts, language)
        for code, facts in findings.notes
        if code in ("edge_optimum", "all_points_diverged", "tuning_at_floor", *NOT_FITTED)
    ]
    lines += carried_lines(findings, language)
    if lines:
        yield Bullets(lines, tone="note")
    yield from rounds_table(findings, study.tuning, language)
    yield from curves_table(findings, language)
    if study.tuning.rank == "solved":
        yield tuning_table(findings, language)
    for picture in _picture(findings, "tuning", language, figures):
        by_solving = say(language, "caption.tuning_by_solving") if study.tuning.rank == "solved" else ""
        many = say(language, "caption.tuning_many") if len(study.tuning.grid) > 1 else ""
        steps = tuning_steps(findings, at_main_size(study))
        rounds = say(language, "caption.tuning_rounds", steps=steps) if plan.rounds else ""
        is_fitted = any(choice.curve for choice in plan.choices.values())
        curves = say(language, "caption.tuning_curves") if is_fitted else ""
        yield Picture(picture.name, picture.caption + by_solving + many + rounds + curves)


# ---- Comparisons ---------------------------------------------------------------------------------------------------


def _differences(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.differences"))
    if "differences" not in figures:
        yield Paragraph(say(language, "differences.none"))
    yield from _picture(findings, "differences", language, figures)


def _decomposition(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.decomposition"))
    if not findings.decomposition:
        yield Paragraph(say(language, "decomposition.none"))
        return
    study = findings.study
    rows = []
    for step in findings.decomposition:
        difference = step.difference
        rows.append([
            say_or_code(language, f"step.{step.step}", {}, study=study),
            f"{label_of(findings, step.control, language)} → {label_of(findings, step.treatment, language)}",
            quality.difference(study.measure, difference.mean),
            quality.interval(study.measure, difference),
            str(len(difference.seeds)),
        ])  # fmt: skip
    columns = ("step", "from_to", "shown_difference", "interval", "seeds")
    header = [say_of(study, language, f"column.{name}") for name in columns]
    caption = _with_scope(findings, "decomposition.table", language) + tables.floor_sentence(findings, language)
    yield Table(caption, header, rows, ["left", "left", "right", "right", "right"])
    yield from _picture(findings, "decomposition", language, figures)


def _memory(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.memory"))
    counted = {arm: tables.counted_bytes(summary) for arm, summary in findings.arms.items()}
    of_columns = list(zip(*counted.values(), strict=True))
    rows = []
    for arm, cells in counted.items():
        shown = [numbers.memory(cell, column=column) for cell, column in zip(cells, of_columns, strict=True)]
        rows.append([label_of(findings, arm, language), *shown])
    columns = ("arm", "weights", "gradients", "optimizer", "sum", "memory")
    header = [say(language, f"column.{name}") for name in columns]
    yield Table(_with_scope(findings, "memory.table", language), header, rows, words_then_numbers(6))
    yield from _picture(findings, "memory", language, figures)


_CLOSING: list[Section] = [
    closing.conclusions, closing.confounds, closing.unfinished, looks, closing.provenance, closing.citation,
]  # fmt: skip
_SECTIONS: list[Section] = [
    _verdicts, scale, _table, draws, examples, probes, _curves, _heads, _parameters, _speed, _target, _tuning,
    _differences, _decomposition, beside, _memory, *_CLOSING,
]  # fmt: skip
_SECTIONS_WITHOUT_RESULTS: list[Section] = [
    _verdicts, _parameters, closing.confounds, looks, closing.provenance, closing.citation,
]  # fmt: skip
