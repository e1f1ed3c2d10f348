"""What a report says, in the order a reader needs it: the answer, its numbers, then everything they rest on."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from oelm.analysis.findings import Findings
from oelm.reporting import closing, numbers, tables, verdicts
from oelm.reporting.arms_in_words import described_arm, note_sentence
from oelm.reporting.beside import beside
from oelm.reporting.document import Block, Bullets, Document, Heading, Paragraph, Picture, Table, numbered
from oelm.reporting.examples import examples
from oelm.reporting.tables import label_of
from oelm.reporting.words import code_for, say, say_or_code
from oelm.study.declaration import Language, in_language

Section = Callable[[Findings, Language, Container[str]], Iterator[Block]]


def document_of(findings: Findings, language: Language, *, figures: Container[str]) -> Document:
    """The whole report; `figures` are the names of those that could be drawn."""
    study = findings.study
    blocks: list[Block] = [*_completeness(findings, language)]
    for section in _sections(findings):
        blocks += section(findings, language, figures)
    return numbered(
        Document(
            language=language,
            title=study.name,
            subtitle=in_language(study.question, language),
            kicker=say(language, "kicker"),
            blocks=blocks,
        )
    )


def _sections(findings: Findings) -> list[Section]:
    if not has_results(findings):
        return _SECTIONS_WITHOUT_RESULTS
    return _SECTIONS_OF_CLASSIFICATION if findings.study.classifies else _SECTIONS


def has_results(findings: Findings) -> bool:
    """Whether any run, of the grid or of the seeds, has come to an end."""
    return any(run.state in ("finished", "diverged") for run in findings.plan.runs)


# ---- First: what is missing ----------------------------------------------------------------------------------------


def _completeness(findings: Findings, language: Language) -> Iterator[Block]:
    lines = list(_missing_lines(findings, language))
    if lines:
        yield Bullets(lines, tone="warning", title=say(language, "partial.title"))


def _missing_lines(findings: Findings, language: Language) -> Iterator[str]:
    study, plan = findings.study, findings.plan
    finished = sum(len(arm.losses) for arm in findings.arms.values())
    if not any(run.stored for run in plan.runs):
        yield say(language, "partial.empty", planned=plan.expected_final_runs, study=study.name)
        return
    if finished == plan.expected_final_runs:
        return
    yield say(language, "partial.final", finished=finished, planned=plan.expected_final_runs)
    if not plan.is_tuned:
        done = sum(run.loss is not None for run in plan.tuning)
        yield say(language, "partial.tuning", finished=done, planned=len(plan.tuning))
    else:
        yield from _missing_by_arm(findings, language)
    yield say(language, "partial.numbers")


def _missing_by_arm(findings: Findings, language: Language) -> Iterator[str]:
    for arm, summary in findings.arms.items():
        for state, seeds in summary.states.items():
            if state != "finished":
                yield say(
                    language,
                    "partial.arm",
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
    family = sum(
        each.hypothesis.confirmatory and each.hypothesis.kind not in ("faster", "fewer_parameters")
        for each in findings.verdicts
    )
    if family:
        yield Paragraph(_say(findings, language, "verdicts.method", family=family), tone="note")


def _table(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.table"))
    yield from _on_learning_rates(findings, language)
    yield tables.quality_table(findings, language)
    yield tables.cost_table(findings, language)
    final = "final_accuracy" if findings.study.classifies else "final_perplexity"
    yield from _picture(findings, final, language, figures)


def _on_learning_rates(findings: Findings, language: Language) -> Iterator[Block]:
    """Whether the arms were tuned: the first thing a referee asks."""
    study = findings.study
    comma = say(language, "list_comma")
    if study.tuning is not None:
        keys = comma.join(
            f"{key} = {comma.join(numbers.learning_rate(value) for value in values)}"
            for key, values in (findings.plan.grid or study.tuning.grid).items()
        )
        code = "table.tuned" if study.learning_rate_is_tuned else "table.other_tuned"
        yield Paragraph(_say(findings, language, code, keys=keys))
    rates = {arm: summary.learning_rate for arm, summary in findings.arms.items()}
    if not study.learning_rate_is_tuned and len(set(rates.values())) > 1:
        listed = comma.join(
            f"{label_of(findings, arm, language)} {numbers.learning_rate(rate)}" for arm, rate in rates.items()
        )
        yield Paragraph(say(language, "table.fixed_learning_rates", values=listed), tone="warning")
    for code, facts in findings.notes:
        if code in ("fixed_learning_rate", "few_seeds", "at_chance"):
            tone = "warning" if code == "at_chance" else "note"
            yield Paragraph(note_sentence(findings, code, facts, language), tone=tone)


def _say(findings: Findings, language: Language, code: str, **facts: object) -> str:
    """In the words of this kind of study."""
    return say(language, code_for(code, classifies=findings.study.classifies), **facts)


def _picture(
    findings: Findings, name: str, language: Language, figures: Container[str], **facts: object
) -> Iterator[Block]:
    if name in figures:
        yield Picture(name, _say(findings, language, f"caption.{name}", **facts))


# ---- What happened -------------------------------------------------------------------------------------------------


def _curves(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.curves"))
    quality = ["validation_accuracy", "validation_loss"] if findings.study.classifies else ["val_ppl_comparison"]
    if quality[0] not in figures:
        yield Paragraph(say(language, "curves.none"))
    for name in (*quality, "training_loss", "learning_rate"):
        yield from _picture(findings, name, language, figures)


def _parameters(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.parameters"))
    yield _arms_table(findings, language)
    by_parameters = "accuracy_by_parameters" if findings.study.classifies else "perplexity_by_parameters"
    for name in ("parameter_distribution", by_parameters):
        yield from _picture(findings, name, language, figures)


def _arms_table(findings: Findings, language: Language) -> Table:
    baseline = findings.arms[findings.study.baseline].trainable
    rows = []
    for arm, summary in findings.arms.items():
        fewer = (
            numbers.percent(100 * (summary.trainable / baseline - 1)) if summary.trainable != baseline else numbers.NONE
        )
        counts = (numbers.whole(summary.total), numbers.whole(summary.trainable), fewer, numbers.whole(summary.frozen))
        rows.append([label_of(findings, arm, language), described_arm(findings, arm, language), *counts])
    columns = ("arm", "start", "total", "trainable", "against_baseline", "frozen")
    header = [say(language, f"column.{name}") for name in columns]
    return Table(say(language, "parameters.table"), header, rows, ["left", "left"] + ["right"] * 4)


def _speed(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.speed"))
    rounds = {summary.ratio.rounds for summary in findings.arms.values() if summary.ratio}
    if rounds:
        yield Paragraph(say(language, "speed.bench", rounds=max(rounds)))
    else:
        yield Paragraph(say(language, "speed.no_bench", study=findings.study.name), tone="note")
    if any(summary.seconds_per_step for summary in findings.arms.values()):
        yield _speed_table(findings, language, with_ratio=bool(rounds))
    baseline = label_of(findings, findings.study.baseline, language)
    yield from _picture(findings, "speed", language, figures, baseline=baseline)


def _speed_table(findings: Findings, language: Language, *, with_ratio: bool) -> Table:
    columns = ["arm", "steps_per_hour", "seconds_per_step", *(["ratio", "interval"] if with_ratio else [])]
    rows = []
    for arm, summary in findings.arms.items():
        per_step = summary.seconds_per_step
        row = [label_of(findings, arm, language), numbers.whole(3600 / per_step if per_step else None)]
        row.append(numbers.seconds(per_step))
        if with_ratio:
            ratio = summary.ratio
            row.append(numbers.ratio(ratio.middle if ratio else None))
            row.append(numbers.interval(ratio.low, ratio.high, numbers.ratio) if ratio else numbers.NONE)
        rows.append(row)
    caption = say(language, "speed.table" if with_ratio else "speed.table_no_bench")
    header = [say(language, f"column.{name}") for name in columns]
    return Table(caption, header, rows, ["left"] + ["right"] * (len(columns) - 1))


def _target(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.target"))
    baseline = label_of(findings, findings.study.baseline, language)
    if findings.target_perplexity is None:
        yield Paragraph(say(language, "target.none", baseline=baseline))
        return
    target = numbers.perplexity(findings.target_perplexity)
    percent = numbers.plain_percent(findings.study.target_percent)
    yield Paragraph(say(language, "target.sentence", percent=percent, baseline=baseline, target=target))
    columns = ("arm", "reached_by", "steps", "tokens", "time", "flops")
    rows = []
    for arm, summary in findings.arms.items():
        reached, name = summary.reached, label_of(findings, arm, language)
        if reached is None:
            rows.append([name, f"0/{len(summary.losses)}", *[numbers.NONE] * 4])
        else:
            rows.append([
                name, f"{reached.seeds}/{len(summary.losses)}", numbers.whole(reached.steps),
                numbers.whole(reached.tokens), numbers.duration(reached.seconds), numbers.flops(reached.flops),
            ])  # fmt: skip
    header = [say(language, f"column.{name}") for name in columns]
    yield Table(say(language, "target.table"), header, rows, ["left"] + ["right"] * 5)
    yield from _picture(findings, "target", language, figures, target=target)


def _tuning(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.tuning"))
    study, plan = findings.study, findings.plan
    if study.tuning is None:
        yield Paragraph(say(language, "tuning.none"))
        return
    if not plan.choices:
        yield Paragraph(say(language, "tuning.open"))
        return
    lines = []
    for key, declared in study.tuning.grid.items():
        added = [value for value in plan.grid.get(key, []) if value not in declared]
        if added:
            values = say(language, "list_comma").join(map(numbers.learning_rate, added))
            lines.append(say(language, "tuning.extended", key=key, values=values))
    lines += [
        note_sentence(findings, code, facts, language)
        for code, facts in findings.notes
        if code in ("edge_optimum", "all_points_diverged", "tuning_at_chance")
    ]
    if lines:
        yield Bullets(lines, tone="note")
    for picture in _picture(findings, "tuning", language, figures):
        assert isinstance(picture, Picture)
        more = say(language, "caption.tuning_many") if len(plan.grid) > 1 else ""
        yield Picture(picture.name, picture.caption + more)


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
    classifies = findings.study.classifies
    rows = []
    for step in findings.decomposition:
        difference = step.difference
        interval = (
            numbers.points_interval(difference.low, difference.high)
            if classifies
            else numbers.interval(difference.low, difference.high, numbers.percent_change)
        )
        rows.append([
            say_or_code(language, code_for(f"step.{step.step}", classifies=classifies), {}),
            f"{label_of(findings, step.control, language)} → {label_of(findings, step.treatment, language)}",
            numbers.points(difference.mean) if classifies else numbers.percent_change(difference.mean),
            interval,
            str(len(difference.seeds)),
        ])  # fmt: skip
    shown = "difference_points" if classifies else "difference_percent"
    header = [say(language, f"column.{name}") for name in ("step", "from_to", shown, "interval", "seeds")]
    yield Table(say(language, "decomposition.table"), header, rows, ["left", "left", "right", "right", "right"])
    yield from _picture(findings, "decomposition", language, figures)


def _memory(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.memory"))
    rows = []
    for arm, summary in findings.arms.items():
        counted = (summary.weight_bytes, summary.gradient_bytes, summary.optimizer_bytes)
        cells = [numbers.memory(each) for each in (*counted, sum(counted), summary.peak_memory_bytes)]
        rows.append([label_of(findings, arm, language), *cells])
    columns = ("arm", "weights", "gradients", "optimizer", "sum", "memory")
    header = [say(language, f"column.{name}") for name in columns]
    yield Table(say(language, "memory.table"), header, rows, ["left"] + ["right"] * 5)
    yield from _picture(findings, "memory", language, figures)


_CLOSING: list[Section] = [
    closing.conclusions, closing.confounds, closing.unfinished, closing.provenance, closing.citation,
]  # fmt: skip
_SECTIONS: list[Section] = [
    _verdicts, _table, _curves, _parameters, _speed, _target, _tuning, _differences, _decomposition, beside, _memory,
    *_CLOSING,
]  # fmt: skip
_SECTIONS_OF_CLASSIFICATION: list[Section] = [
    _verdicts, _table, examples, _curves, _parameters, _speed, _tuning, _differences, _decomposition, beside, _memory,
    *_CLOSING,
]  # fmt: skip
_SECTIONS_WITHOUT_RESULTS: list[Section] = [_verdicts, _parameters, closing.confounds, closing.citation]
