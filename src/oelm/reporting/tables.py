"""The table of a study: its cells once, shown in the document, as text, as Markdown and as CSV of plain numbers."""

from __future__ import annotations

import csv
import io
import math
import unicodedata
from typing import Any

from oelm.analysis.findings import ArmSummary, Findings, PairedDifference, Verdict
from oelm.reporting import numbers
from oelm.reporting.document import Align, Table
from oelm.reporting.words import code_for, say
from oelm.study.declaration import Language, in_language
from oelm.study.plan import PlannedRun


def label_of(findings: Findings, arm: str, language: Language) -> str:
    return in_language(findings.study.arms[arm].label or arm, language)


# ---- Cells ---------------------------------------------------------------------------------------------------------


def quality_table(findings: Findings, language: Language) -> Table:
    classifies = findings.study.classifies
    more = ("p_adjusted", "ratio") if classifies else ("p_adjusted",)
    columns = ("arm", "learning_rate", "seeds", *_quality_columns(findings), *more)
    code = code_for("table.quality", classifies=classifies)
    caption = say(language, code, baseline=label_of(findings, findings.study.baseline, language))
    return _table(findings, language, columns, caption)


def _quality_columns(findings: Findings) -> tuple[str, ...]:
    if findings.study.classifies:
        return "accuracy", "loss", "difference_points"
    return "perplexity", "loss", "difference", "difference_percent"


def cost_table(findings: Findings, language: Language) -> Table:
    columns = ("arm", "total", "trainable", "frozen", *_cost_columns(findings))
    return _table(findings, language, columns, say(language, "table.cost"))


def whole_table(findings: Findings, language: Language) -> Table:
    """All of it, for files that may be as wide as they need."""
    columns = (
        "arm", "total", "trainable", "frozen", "learning_rate", "seeds", *_quality_columns(findings), "p_adjusted",
        *_cost_columns(findings),
    )  # fmt: skip
    return _table(findings, language, columns, findings.study.name)


def _cost_columns(findings: Findings) -> tuple[str, ...]:
    read = ("training_examples", "tokens") if findings.study.classifies else ("tokens",)
    return (*read, "flops", "seconds_per_step", "memory", "diverged")


def _table(findings: Findings, language: Language, columns: tuple[str, ...], caption: str) -> Table:
    align: list[Align] = ["left" if name == "arm" else "right" for name in columns]
    rows = [[_cell(findings, language, summary, name) for name in columns] for summary in findings.arms.values()]
    return Table(caption, [say(language, f"column.{name}") for name in columns], rows, align)


def _cell(findings: Findings, language: Language, summary: ArmSummary, column: str) -> str:
    difference = summary.difference
    is_baseline = summary.arm == findings.study.baseline
    match column:
        case "arm":
            label = label_of(findings, summary.arm, language)
            word = say(language, "table.baseline")
            return f"{label} ({word})" if is_baseline and word not in label else label
        case "total" | "trainable" | "frozen" | "tokens":
            return numbers.whole(getattr(summary, column))
        case "training_examples":
            return numbers.whole(summary.training_examples)
        case "learning_rate":
            return numbers.learning_rate(summary.learning_rate)
        case "seeds":
            return f"{len(summary.losses)}/{len(findings.study.seeds)}"
        case "perplexity":
            return _with_spread(*_perplexity(summary), numbers.perplexity)
        case "loss":
            return _with_spread(summary.mean_loss, summary.standard_deviation, numbers.loss)
        case "difference":
            if difference is None or difference.mean is None:
                return numbers.NONE
            return _with_interval(numbers.nats(difference.mean), difference.low, difference.high, numbers.nats)
        case "difference_percent":
            if difference is None or difference.mean is None:
                return numbers.NONE
            middle = numbers.percent_change(difference.mean)
            return _with_interval(middle, difference.low, difference.high, numbers.percent_change)
        case "accuracy":
            return _with_spread(summary.accuracy, summary.accuracy_deviation, numbers.accuracy)
        case "difference_points":
            gain = summary.error_difference
            if gain is None or gain.mean is None:
                return numbers.NONE
            return " ".join([numbers.points(gain.mean), *_interval_of_points(gain)])
        case "ratio":
            return numbers.ratio(summary.ratio.middle if summary.ratio else None)
        case "p_adjusted":
            return _p_values(adjusted_p(findings, summary.arm))
        case "flops":
            return numbers.flops(summary.flops)
        case "seconds_per_step":
            return numbers.seconds(summary.seconds_per_step)
        case "memory":
            return numbers.memory(summary.peak_memory_bytes)
        case _:
            return str(len(summary.states.get("diverged", [])))


def _p_values(found: list[tuple[str, float]]) -> str:
    """With the hypothesis' name where there are several."""
    if len(found) == 1:
        return numbers.probability(found[0][1])
    return "; ".join(f"{name} {numbers.probability(p)}" for name, p in found) or numbers.NONE


def _with_spread(middle: float | None, spread: float | None, show) -> str:
    if middle is None:
        return numbers.NONE
    return show(middle) if spread is None else f"{show(middle)} ± {show(spread)}"


def _with_interval(middle: str, low: float | None, high: float | None, show) -> str:
    return middle if low is None or high is None else f"{middle} {numbers.interval(low, high, show)}"


def _interval_of_points(difference: PairedDifference) -> list[str]:
    known = difference.low is not None and difference.high is not None
    return [numbers.points_interval(difference.low, difference.high)] if known else []


def _perplexity(summary: ArmSummary) -> tuple[float | None, float | None]:
    """e to the mean loss, and its spread over the seeds to first order."""
    middle = numbers.perplexity_of(summary.mean_loss)
    if middle is None or summary.standard_deviation is None:
        return middle, None
    return middle, middle * summary.standard_deviation


def adjusted_p(findings: Findings, arm: str) -> list[tuple[str, float]]:
    """Of the hypotheses that compare the arm with the baseline."""
    return [
        (verdict.hypothesis.name, verdict.p_adjusted)
        for verdict in findings.verdicts
        if verdict.p_adjusted is not None and _compares(verdict, arm, findings.study.baseline)
    ]


def _compares(verdict: Verdict, arm: str, baseline: str) -> bool:
    hypothesis = verdict.hypothesis
    return {hypothesis.treatment, hypothesis.control} == {arm, baseline}


# ---- Text ----------------------------------------------------------------------------------------------------------


def as_text(table: Table) -> str:
    """Columns aligned for a terminal; a Chinese character takes two places."""
    lines = [[one_line(cell) for cell in line] for line in (table.header, *table.rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    shown = [
        "  ".join(
            _padded(cell, width, side) for cell, width, side in zip(line, widths, table.align, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join([shown[0], "  ".join("-" * width for width in widths), *shown[1:]])


def one_line(text: str) -> str:
    return " ".join(text.split())


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _padded(text: str, width: int, align: Align) -> str:
    room = " " * (width - _width(text))
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
        "learning_rate": summary.learning_rate,
        "seeds_finished": len(summary.losses),
        "seeds_planned": len(findings.study.seeds),
        **(_accuracy_cells(summary) if findings.study.classifies else _perplexity_cells(summary)),
        "p_adjusted": "; ".join(f"{name}: {p:.6g}" for name, p in adjusted_p(findings, summary.arm)),
        "tokens": summary.tokens,
        "flops": summary.flops,
        "seconds_per_step": summary.seconds_per_step,
        "time_ratio": summary.ratio.middle if summary.ratio else None,
        "peak_memory_bytes": summary.peak_memory_bytes,
        "diverged": len(summary.states.get("diverged", [])),
    }


def _perplexity_cells(summary: ArmSummary) -> dict[str, Any]:
    difference = summary.difference
    return {
        "perplexity": numbers.perplexity_of(summary.mean_loss),
        "loss_mean": summary.mean_loss,
        "loss_standard_deviation": summary.standard_deviation,
        "difference_nats": difference.mean if difference else None,
        "difference_low_nats": difference.low if difference else None,
        "difference_high_nats": difference.high if difference else None,
        "difference_pairs": len(difference.seeds) if difference else None,
    }


def _accuracy_cells(summary: ArmSummary) -> dict[str, Any]:
    """The difference is of accuracies, as shares: above zero the arm is better than the baseline."""
    difference = summary.error_difference
    return {
        "accuracy_mean": summary.accuracy,
        "accuracy_standard_deviation": summary.accuracy_deviation,
        "loss_mean": summary.mean_loss,
        "loss_standard_deviation": summary.standard_deviation,
        "difference_accuracy": _gain(difference.mean) if difference else None,
        "difference_low_accuracy": _gain(difference.high) if difference else None,
        "difference_high_accuracy": _gain(difference.low) if difference else None,
        "difference_pairs": len(difference.seeds) if difference else None,
        "training_examples": summary.training_examples,
        "reported_examples": summary.examples,
    }


def _gain(error: float | None) -> float | None:
    return None if error is None else 0.0 - error


def runs_csv(findings: Findings) -> str:
    """Every run the study asks for, with or without a result."""
    columns = _result_columns(findings)
    planned = [_run_row(run, columns) for run in findings.plan.runs]
    return _csv([*planned, *_waiting_rows(findings)], columns=[*_RUN_COLUMNS, *columns, *_ORIGIN_COLUMNS])


def waiting_runs(findings: Findings) -> list[tuple[str, int]]:
    """Final runs that cannot be planned yet, because tuning goes on or found no stable point."""
    planned = {(run.arm, run.seed) for run in findings.plan.final}
    return [(arm, seed) for arm in findings.study.arms for seed in findings.study.seeds if (arm, seed) not in planned]


def _waiting_rows(findings: Findings) -> list[dict[str, Any]]:
    return [{"stage": "final", "arm": arm, "seed": seed, "state": "missing"} for arm, seed in waiting_runs(findings)]


_RESULT_COLUMNS = (
    "val_loss", "perplexity", "train_loss", "best_val_loss", "steps", "tokens", "learning_rate", "training_seconds",
    "validation_seconds", "wall_seconds", "mean_step_seconds", "peak_memory_bytes", "resumes", "world_size", "device",
    "precision",
)  # fmt: skip


_RUN_COLUMNS = ("stage", "arm", "seed", "point", "state")
_ORIGIN_COLUMNS = ("directory", "commit", "data_digest", "error")


def _result_columns(findings: Findings) -> tuple[str, ...]:
    if not findings.study.classifies:
        return _RESULT_COLUMNS
    return ("accuracy", "examples", *(name for name in _RESULT_COLUMNS if name != "perplexity"))


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
        "error": one_line(str(stored.status["error"])) if stored and stored.status.get("error") else None,
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
