"""The table of a study: its cells once, shown in the article, as text, as Markdown and as CSV of plain numbers."""

from __future__ import annotations

import csv
import io
import math
import unicodedata
from collections.abc import Sequence
from typing import Any

from oelm.analysis.findings import ArmSummary, Findings, PairedDifference, Scope, Span
from oelm.core.measures import Measure
from oelm.machine.visible import visible
from oelm.show import numbers, quality
from oelm.show.article import Align, Table
from oelm.show.words import say, say_of
from oelm.study.declaration import Language, Study, in_language
from oelm.study.plan import PlannedRun
from oelm.study.scaled import label_at_any_size, size_elsewhere


def label_of(findings: Findings, arm: str, language: Language) -> str:
    return label_in(findings.study, arm, language)


def floor_sentence(findings: Findings, language: Language) -> str:
    """That of the baseline, for the end of a caption: no number without what is reached by learning nothing."""
    said = quality.floor(findings.study, findings.arms[findings.study.baseline].floor, language)
    return say(language, "floor.sentence", floor=said)


def label_in(study: Study, arm: str, language: Language) -> str:
    """With its size where that is not the main one."""
    label = in_language(label_at_any_size(study, arm) or arm, language)
    size = size_elsewhere(study, arm)
    return f"{label} ({size})" if size else label


def scope_line(scope: Scope, language: Language) -> str:
    """How far a result reaches, beside every claim: 1.3M parameters, 0.6M tokens a run, tinystories-4096; then what the
    study states."""

    def counts(span: Span) -> str:
        least, most = numbers.spoken(span.least), numbers.spoken(span.most)
        return least if least == most else say(language, "scope.span", least=least, most=most)

    code, read = ("scope.tokens", scope.tokens) if scope.examples is None else ("scope.examples", scope.examples)
    facts = {"read": say(language, code, count=counts(read)), "data": say(language, "list_comma").join(scope.data)}
    line = say(language, "scope.line", parameters=counts(scope.parameters), **facts)
    if not scope.stated:
        return line
    return say(language, "scope.stated", line=line, stated=in_language(scope.stated, language))


def table(
    findings: Findings,
    language: Language,
    columns: Sequence[str],
    rows: list[list[str]],
    caption: str,
    *,
    words: int = 1,
) -> Table:
    """Of named columns: as many of words, on the left, then numbers."""
    header = [say_of(findings.study, language, f"column.{name}") for name in columns]
    return Table(caption, header, rows, ["left" if column < words else "right" for column in range(len(columns))])


def captioned(findings: Findings, language: Language, code: str, **facts: object) -> str:
    """A table's caption: no number without the size and the training it is about."""
    return say_of(findings.study, language, code, scope=scope_line(findings.scope, language), **facts)


# ---- Cells ---------------------------------------------------------------------------------------------------------


def quality_table(findings: Findings, language: Language) -> Table:
    columns = ("arm", "learning_rate", "seeds", *findings.study.measure.columns)
    baseline = label_of(findings, findings.study.baseline, language)
    caption = captioned(findings, language, "table.quality", baseline=baseline) + floor_sentence(findings, language)
    return _of_arms(findings, language, columns, caption)


def cost_table(findings: Findings, language: Language) -> Table:
    columns = ("arm", "total", "trainable", *counts_at_rest(findings), *_cost_columns(findings))
    return _of_arms(findings, language, columns, captioned(findings, language, "table.cost"))


def whole_table(findings: Findings, language: Language) -> Table:
    """All of it, for files that may be as wide as they need."""
    columns = (
        "arm", "total", "trainable", *counts_at_rest(findings), "learning_rate", "seeds",
        *(column for column in findings.study.measure.columns if column != "ratio"), *_cost_columns(findings),
    )  # fmt: skip
    caption = f"{findings.study.name} ({scope_line(findings.scope, language)}).{floor_sentence(findings, language)}"
    return _of_arms(findings, language, columns, caption)


def has_implied(findings: Findings) -> bool:
    return any(summary.implied for summary in findings.arms.values())


def counts_at_rest(findings: Findings) -> tuple[str, ...]:
    """Columns for what is never trained; one for matrices that nobody stores only where there are any."""
    return ("frozen", "implied") if has_implied(findings) else ("frozen",)


def _cost_columns(findings: Findings) -> tuple[str, ...]:
    read = ("training_examples", "tokens") if findings.study.fine_tunes else ("tokens",)
    return (*read, "flops", "seconds_per_step", "memory", "diverged")


def _of_arms(findings: Findings, language: Language, columns: tuple[str, ...], caption: str) -> Table:
    rows = [[_cell(findings, language, summary, name) for name in columns] for summary in findings.arms.values()]
    return table(findings, language, columns, rows, caption)


def _cell(findings: Findings, language: Language, summary: ArmSummary, column: str) -> str:
    measure, own = findings.study.measure, summary.quality
    is_baseline = summary.arm == findings.study.baseline
    match column:
        case "arm":
            label = label_of(findings, summary.arm, language)
            word = say(language, "table.baseline")
            return f"{label} ({word})" if is_baseline and word not in label else label
        case "total" | "trainable" | "frozen" | "implied" | "tokens" | "training_examples":
            return numbers.whole(getattr(summary, column))
        case "learning_rate":
            return numbers.learning_rate(summary.learning_rate)
        case "seeds":
            return f"{len(summary.losses)}/{len(findings.study.seeds)}"
        case "value":
            in_column = [each.quality.mean for each in findings.arms.values()]
            return quality.value(measure, own.mean, spread=own.standard_deviation, column=in_column)
        case "loss":
            shown = numbers.loss(summary.mean_loss)
            spread = summary.standard_deviation
            return shown if spread is None else f"{shown} ± {numbers.loss(spread)}"
        case "difference":
            return _difference(measure, own.difference, quality.logarithm)
        case "shown_difference":
            return _difference(measure, own.difference)
        case "ratio":
            return numbers.ratio(summary.ratio.middle if summary.ratio else None)
        case "p_adjusted":
            found = adjusted_p(findings, summary.arm)
            if len(found) == 1:
                return numbers.probability(found[0][1])
            return "; ".join(f"{name} {numbers.probability(p)}" for name, p in found) or numbers.NONE
        case "flops":
            return numbers.flops(summary.flops, column=_column(findings, "flops"))
        case "seconds_per_step":
            return numbers.seconds(summary.seconds_per_step, column=_column(findings, "seconds_per_step"))
        case "memory":
            return numbers.memory(summary.peak_memory_bytes, column=_column(findings, "peak_memory_bytes"))
        case "diverged":
            return str(len(summary.states.get("diverged", [])))
        case _:
            raise AssertionError(f"no such column: {column}")


def counted_bytes(summary: ArmSummary) -> tuple[float | None, ...]:
    """Of weights, gradients, optimizer and all three; and the most that a run had."""
    counted = (summary.weight_bytes, summary.gradient_bytes, summary.optimizer_bytes)
    return (*counted, sum(counted), summary.peak_memory_bytes)


def _column(findings: Findings, name: str) -> list[float | None]:
    return [getattr(summary, name) for summary in findings.arms.values()]


def _difference(measure: Measure, difference: PairedDifference | None, show: quality.Show = quality.difference) -> str:
    if difference is None or difference.mean is None:
        return numbers.NONE
    return quality.with_interval(show(measure, difference.mean), measure, difference, show)


def adjusted_p(findings: Findings, arm: str) -> list[tuple[str, float]]:
    """Of the hypotheses that compare the arm with the baseline at the main size alone."""
    return [
        (verdict.hypothesis.name, verdict.p_adjusted)
        for verdict in findings.verdicts
        if verdict.p_adjusted is not None and verdict.hypothesis.against is None
        if {verdict.hypothesis.treatment, verdict.hypothesis.control} == {arm, findings.study.baseline}
    ]


# ---- Text ----------------------------------------------------------------------------------------------------------


def as_text(table: Table) -> str:
    """Columns aligned for a terminal; a Chinese character takes two places."""
    lines = [[one_line(cell) for cell in line] for line in (table.header, *table.rows)]
    widths = [max(map(places, column)) for column in zip(*lines, strict=True)]
    shown = [
        "  ".join(
            _padded(cell, width, side) for cell, width, side in zip(line, widths, table.align, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join([shown[0], "  ".join("-" * width for width in widths), *shown[1:]])


def one_line(text: str) -> str:
    return " ".join(visible(text).split())


def places(text: str) -> int:
    """That a text takes in a line."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _padded(text: str, width: int, align: Align) -> str:
    room = " " * (width - places(text))
    return text + room if align == "left" else room + text


# ---- CSV -----------------------------------------------------------------------------------------------------------


def comparison_csv(findings: Findings) -> str:
    """Plain numbers for a spreadsheet; nothing rounded."""
    return _csv([_comparison_row(findings, summary) for summary in findings.arms.values()])


def _comparison_row(findings: Findings, summary: ArmSummary) -> dict[str, Any]:
    return {
        "arm": summary.arm,
        "is_baseline": summary.arm == findings.study.baseline,
        "total_parameters": summary.total,
        "trainable_parameters": summary.trainable,
        "frozen_parameters": summary.frozen,
        **({"implied_parameters": summary.implied} if has_implied(findings) else {}),
        "learning_rate": summary.learning_rate,
        **_rate_cells(findings, summary.arm),
        "seeds_finished": len(summary.losses),
        "seeds_planned": len(findings.study.seeds),
        **_quality_cells(findings.study, summary),
        **_p_cells(findings, summary.arm),
        "tokens": summary.tokens,
        "flops": summary.flops,
        "seconds_per_step": summary.seconds_per_step,
        "time_ratio": summary.ratio.middle if summary.ratio else None,
        "peak_memory_bytes": summary.peak_memory_bytes,
        "diverged": len(summary.states.get("diverged", [])),
    }


def _rate_cells(findings: Findings, arm: str) -> dict[str, float | None]:
    """What the chosen rate may cost, where a claim has an allowance."""
    by_arm = {each: nats for one in findings.verdicts if one.rates for each, nats in one.rates.arms.items()}
    return {"rate_allowance_nats": by_arm.get(arm)} if by_arm else {}


def _p_cells(findings: Findings, arm: str) -> dict[str, float | None]:
    """One column for each tested claim about an arm and the baseline. `p_adjusted` is that of the arm's only one."""
    own = dict(adjusted_p(findings, arm))
    tested = {name for other in findings.arms for name, _ in adjusted_p(findings, other)}
    names = [verdict.hypothesis.name for verdict in findings.verdicts if verdict.hypothesis.name in tested]
    only = next(iter(own.values())) if len(own) == 1 else None
    return {"p_adjusted": only} | {f"p_adjusted_{name}": own.get(name) for name in names}


def _quality_cells(study: Study, summary: ArmSummary) -> dict[str, Any]:
    """As compared, differences with the sign of the values; of a logarithm also what it is one of."""
    measure, own = study.measure, summary.quality
    shown = {measure.shown_key: None if own.mean is None else measure.scale.shown(own.mean)}
    examples = {"training_examples": summary.training_examples, "reported_examples": summary.examples}
    return {
        **(shown if measure.scale.is_logarithmic else {}),
        "floor_learnt_nothing": summary.floor.learnt_nothing if summary.floor else None,
        "floor_learnt_little": summary.floor.learnt_little if summary.floor else None,
        f"{measure.key}_mean": own.mean,
        f"{measure.key}_standard_deviation": own.standard_deviation,
        "loss_mean": summary.mean_loss,
        "loss_standard_deviation": summary.standard_deviation,
        **_difference_cells(measure, own.difference),
        **(examples if study.fine_tunes else {}),
    }


def _difference_cells(measure: Measure, difference: PairedDifference | None) -> dict[str, Any]:
    unit = measure.names.difference_unit
    names = [f"difference_{unit}", f"difference_low_{unit}", f"difference_high_{unit}"]
    if difference is None:
        return dict.fromkeys([*names, "difference_pairs"])
    low, high = measure.ends(difference.low, difference.high)
    values = [None if each is None else measure.gain(each) for each in (difference.mean, low, high)]
    return dict(zip(names, values, strict=True)) | {"difference_pairs": len(difference.seeds)}


def runs_csv(findings: Findings) -> str:
    """Every run the study asks for, with or without a result."""
    columns = _result_columns(findings)
    rows = [_run_row(run, columns) for run in findings.plan.runs]
    rows += [{"stage": "final", "arm": arm, "seed": seed, "state": "missing"} for arm, seed in waiting_runs(findings)]
    return _csv(rows, columns=[*_RUN_COLUMNS, *columns, *_ORIGIN_COLUMNS])


def finished_final_runs(findings: Findings) -> int:
    plan = findings.plan
    return len(plan.final) - len(plan.saved) - sum(run.stage == "final" for run in findings.unfinished)


def waiting_runs(findings: Findings) -> list[tuple[str, int]]:
    """Final runs that cannot be planned yet, because tuning goes on or found no stable point: arm and seed."""
    plan, study = findings.plan, findings.study
    planned = {(run.arm, run.seed) for run in plan.final}
    wanted = ((arm, seed) for arm in study.arms for seed in study.seeds)
    return [each for each in wanted if each not in planned]


_RESULT_COLUMNS = (
    "val_loss", "perplexity", "train_loss", "best_val_loss", "steps", "tokens", "learning_rate", "training_seconds",
    "validation_seconds", "wall_seconds", "mean_step_seconds", "peak_memory_bytes", "resumes", "world_size", "device",
    "precision",
)  # fmt: skip


_RUN_COLUMNS = ("stage", "arm", "seed", "point", "state")
_ORIGIN_COLUMNS = ("directory", "commit", "data_digest", "error")


def _result_columns(findings: Findings) -> tuple[str, ...]:
    study, key = findings.study, findings.study.measure.shown_key
    own = (key,) if key not in _RESULT_COLUMNS else ()
    if not study.fine_tunes:
        return (*own, *_RESULT_COLUMNS)
    return (*own, "examples", *(name for name in _RESULT_COLUMNS if name != "perplexity"))


def _run_row(run: PlannedRun, columns: tuple[str, ...]) -> dict[str, Any]:
    stored = run.stored
    result = (stored.result if stored else None) or {}
    environment = stored.environment if stored else {}
    return {
        "stage": run.stage,
        "arm": run.arm,
        "seed": run.seed,
        "point": "; ".join(f"{key}={value:g}" for key, value in run.point),
        "state": run.state,
        **{name: result.get(name) for name in columns},
        "directory": stored.name if stored else None,
        "commit": environment.get("commit"),
        "data_digest": environment.get("data_digest"),
        "error": one_line(stored.error) if stored and stored.error else None,
    }


def _csv(rows: list[dict[str, Any]], columns: list[str] | None = None) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(
        stream, columns or list(rows[0]) if rows or columns else [], restval="", lineterminator="\n"
    )
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _plain(value) for key, value in row.items()})
    return stream.getvalue()


def _plain(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return value
