"""What a report says, in the order a reader needs it: the answer, its numbers, then everything they rest on."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from oelm.analysis.findings import NOT_FITTED, Findings, McNemar
from oelm.analysis.statistics import LEAST_INFORMATIVE
from oelm.core.floors import accuracy_standard_error
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
from oelm.show.looks import looks
from oelm.show.probes import probes, tuning_table
from oelm.show.rates import curves_table, extended_lines, rounds_table, tuning_steps
from oelm.show.scale import carried_lines, scale
from oelm.show.tables import captioned, counts_at_rest, label_of, table
from oelm.show.words import say, say_of, say_or_code
from oelm.study.claims.kinds import MEASURED, SOLVING
from oelm.study.declaration import Language, Study, in_language
from oelm.study.one_run import is_drawn
from oelm.study.scaled import at_main_size
from oelm.study.sizes import LEAST_FOR_A_LINE

Section = Callable[[Findings, Language, Container[str]], Iterator[Block]]


def article_of(findings: Findings, language: Language, *, figures: Container[str]) -> Article:
    """The whole report; `figures` are the names of those that could be drawn."""
    return numbered(unnumbered_article(findings, language, figures=figures))


def unnumbered_article(findings: Findings, language: Language, *, figures: Container[str]) -> Article:
    study = findings.study
    blocks: list[Block] = []
    if lines := list(missing_lines(findings, language)):
        blocks.append(Bullets(lines, tone="warning", title=say(language, "partial.title")))
    if lines := list(cautions(findings, language)):
        blocks.append(Bullets(lines, tone="warning", title=say(language, "caution.title")))
    has_results = any(
        run.state in ("finished", "diverged") for run in findings.plan.runs
    )  # of the grid or of the seeds
    for section in _SECTIONS if has_results else _SECTIONS_WITHOUT_RESULTS:
        blocks += section(findings, language, figures)
    return Article(
        language=language,
        title=study.name,
        subtitle=in_language(study.question, language),
        kicker=say(language, "kicker"),
        blocks=blocks,
    )


# ---- First: what is missing ----------------------------------------------------------------------------------------


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
    for arm, summary in findings.at_all_sizes.items() if plan.is_tuned else ():
        for state, seeds in summary.states.items():
            if state not in ("finished", "not_needed"):
                code = "partial.arm" if len(seeds) == 1 else "partial.arm.seeds"
                named = {"arm": label_of(findings, arm, language), "seeds": verdicts.seed_list(seeds, language)}
                yield say(language, code, **named, state=say(language, f"state.{state}"))
    yield say(language, "partial.numbers.looks" if study.looks else "partial.numbers")


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
        tested = [each.difference for each in findings.verdicts if each.p is not None]
        if any(each is not None and not each.standard_deviation for each in tested):
            method += say(language, "verdicts.method.without_spread")
        method += say(language, "verdicts.mcnemar") if study.measure.from_predictions else ""
        if any(each.rates and each.rates.arms for each in findings.verdicts):
            method += say(language, "verdicts.method.rates")
        yield Paragraph(method, tone="note")
    if "scale" in family:
        yield Paragraph(say_of(study, language, "verdicts.method.scale", least=LEAST_FOR_A_LINE), tone="note")
    if any(each.evidence in SOLVING for each in study.hypotheses):
        facts = {"family": len(family), "least": LEAST_INFORMATIVE}
        yield Paragraph(say_of(study, language, "verdicts.method.solving", **facts), tone="note")
    if study.looks:
        yield Paragraph(say(language, "verdicts.method.looks"), tone="note")


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
        text = _on_the_grid(study, keys, language)
        if study.tuning.method == "halving":
            text += say(language, "table.halving", margin=f"{study.tuning.margin:g}")
        yield Paragraph(text + (say(language, "table.fitted") if study.tuning.choose == "fitted" else ""))
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


# ---- What it rests on ----------------------------------------------------------------------------------------------


def _draws(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    counts: dict[int, list[str]] = {}  # finished seeds -> arms
    for arm, summary in findings.arms.items():
        if summary.losses and is_drawn(findings.study, arm, summary.values):
            counts.setdefault(len(summary.losses), []).append(label_of(findings, arm, language))
    for seeds, arms in counts.items():
        listed = say(language, "list_semicolon").join(arms)
        yield Paragraph(say(language, "draws.one", arms=listed, total=seeds), tone="note")


COUNTS = ("both_right", "treatment_only", "control_only", "both_wrong")


def _examples(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    """Nothing where no predictions are compared."""
    if not findings.study.measure.from_predictions:
        return
    yield Heading(say(language, "heading.examples"))
    baseline = findings.arms[findings.study.baseline]
    accuracy, on_one_accuracy = baseline.quality.mean, ""
    if accuracy is not None and baseline.examples:
        error = 100 * accuracy_standard_error(accuracy, baseline.examples)
        facts = {"accuracy": numbers.share(accuracy), "error": quality.in_points(language, f"{error:.2f}")}
        on_one_accuracy = say(language, "examples.error", examples=numbers.whole(baseline.examples), **facts)
    yield Paragraph(on_one_accuracy)
    rows = []
    for names, pairs in _by_pair_of_arms(findings, language).items():
        for pair in pairs:
            counts = [numbers.whole(getattr(pair, name)) for name in COUNTS]
            p = numbers.probability(pair.p)
            rows.append([names, str(pair.seed), *counts, numbers.points(gain(pair)), p])
    if not rows:
        yield Paragraph(say(language, "examples.none"))
        return
    yield Paragraph(say(language, "examples.sentence"))
    columns = ("hypothesis", "seed", *COUNTS, "shown_difference", "p")
    yield table(findings, language, columns, rows, say(language, "examples.table"))


def _by_pair_of_arms(findings: Findings, language: Language) -> dict[str, list[McNemar]]:
    """Names of the hypotheses -> the tables of their arms: two claims about the same arms share them."""
    found: dict[tuple[str, str], tuple[list[str], list[McNemar]]] = {}
    for verdict in findings.verdicts:
        claim = verdict.hypothesis
        names, _ = found.setdefault((claim.treatment, claim.control), ([], verdict.mcnemar))
        names += [claim.name] if verdict.mcnemar else []
    return {say(language, "list_comma").join(names): pairs for names, pairs in found.values()}


def gain(pair: McNemar) -> float:
    """Of the treatment, in percentage points."""
    return 100 * (pair.treatment_only - pair.control_only) / pair.examples


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
    rows = []
    for arm, heads in scored.items():
        best = [numbers.score(heads.strongest[kind].mean[-1]) for kind in HEAD_KINDS]
        rows.append([label_of(findings, arm, language), str(heads.seeds), *best])
    header = [*(say(language, f"column.{name}") for name in ("arm", "seeds"))]
    header += [say(language, f"head.{kind}") for kind in HEAD_KINDS]
    yield Table(captioned(findings, language, "heads.table"), header, rows, words_then_numbers(len(header)))
    yield from _picture(findings, "heads_forming", language, figures)
    yield from _picture(findings, "head_scores", language, figures)


def _parameters(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.parameters"))
    baseline, rows = findings.arms[findings.study.baseline].trainable, []
    for arm, summary in findings.arms.items():
        change = 100 * (summary.trainable / baseline - 1) if summary.trainable != baseline else None
        counts = [numbers.whole(summary.total), numbers.whole(summary.trainable), numbers.percent(change)]
        counts += [numbers.whole(getattr(summary, name)) for name in counts_at_rest(findings)]
        rows.append([label_of(findings, arm, language), described_arm(findings, arm, language), *counts])
    columns = ("arm", "treated", "total", "trainable", "against_baseline", *counts_at_rest(findings))
    yield table(findings, language, columns, rows, captioned(findings, language, "parameters.table"), words=2)
    yield from _picture(findings, "parameter_distribution", language, figures)
    by_parameters = findings.study.measure.figures.by_parameters
    yield from _picture(findings, by_parameters, language, figures, code="by_parameters")


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
    if not bench["fits"]:
        return
    control, quiet = bench["control"], bench["undisturbed"]
    if bench["busy"] or control is None:
        facts = {"study": findings.study.name, "blocks": bench["blocks"], "quiet": quiet}
        yield Paragraph(say(language, "speed.busy", **facts), tone="warning")
        return
    baseline = bench["baseline"]
    facts = {
        "blocks": quiet,
        "baseline": label_of(findings, baseline, language) if baseline in findings.arms else baseline,
        "control": numbers.ratio(control.middle),
        "interval": numbers.interval(control.low, control.high, numbers.ratio),
    }
    yield Paragraph(say(language, "speed.bench", **facts))


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
    caption = captioned(findings, language, "speed.table" if with_ratio else "speed.table_no_bench")
    return table(findings, language, columns, rows, caption)


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
    caption = captioned(findings, language, "target.table") + tables.floor_sentence(findings, language)
    yield table(findings, language, columns, rows, caption)
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
        more = {
            "tuning_by_solving": study.tuning.rank == "solved",
            "tuning_many": len(study.tuning.grid) > 1,
            "tuning_rounds": bool(plan.rounds),
            "tuning_curves": any(choice.curve for choice in plan.choices.values()),
        }
        steps = tuning_steps(findings, at_main_size(study)) if plan.rounds else ""
        said = [say(language, f"caption.{code}", steps=steps) for code, is_so in more.items() if is_so]
        yield Picture(picture.name, picture.caption + "".join(said))


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
    caption = captioned(findings, language, "decomposition.table") + tables.floor_sentence(findings, language)
    yield table(findings, language, columns, rows, caption, words=2)
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
    yield table(findings, language, columns, rows, captioned(findings, language, "memory.table"))
    yield from _picture(findings, "memory", language, figures)


_SECTIONS: list[Section] = [
    _verdicts, scale, _table, _draws, _examples, probes, _curves, _heads, _parameters, _speed, _target, _tuning,
    _differences, _decomposition, beside, _memory, closing.conclusions, closing.confounds, closing.unfinished, looks,
    closing.provenance, closing.citation,
]  # fmt: skip
_SECTIONS_WITHOUT_RESULTS: list[Section] = [
    _verdicts, _parameters, closing.confounds, looks, closing.provenance, closing.citation,
]  # fmt: skip
