"""What the runs of a study are compared by. An entry of MEASURES is a whole measure: where a run stores it, which way
is better, how differences are shown and margins stated, how pairs are tested, and what both languages call it.

Declarations, verdicts, tables, figures and reports ask the entry. The loss alone they know by name: every run has one,
whatever it is compared by, and tuning goes by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from oelm.core import floors
from oelm.core.floors import Floor
from oelm.core.logarithms import exponential, nats, percent_change

Phrase = tuple[str, str]  # English, Chinese


# ---- Scales --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """In what values are compared, what of it a reader is shown, and how a study's file states a margin."""

    key: str
    margin_key: str  # in a study's file
    stored_margin: str  # in analysis_results.json, in the units of the comparison
    usual_margin: float  # as stated, where no claim states one
    is_logarithmic: bool  # what is compared is a logarithm of what is shown
    shown: Callable[[float], float]  # from a compared value
    shown_difference: Callable[[float], float]  # from a difference of compared values
    margin: Callable[[float], float]  # as stated -> in the units of the comparison
    number_format: str  # of a shown value in a line of text
    # Whether differences without any spread are decided by the exact sign-flip test: shares of a whole may well be
    # equal, for example where all runs are perfect; equal losses are a sign that something was computed once.
    decides_without_spread: bool


# Quantities that are compared by their ratio, over their logarithms: a loss in nats is that of a perplexity.
PERCENT = Scale(
    key="percent",
    margin_key="margin_percent",
    stored_margin="margin_nats",
    usual_margin=5.0,
    is_logarithmic=True,
    shown=exponential,
    shown_difference=percent_change,
    margin=nats,
    number_format=".3f",
    decides_without_spread=False,
)
# Shares of a whole.
POINTS = Scale(
    key="points",
    margin_key="margin_points",
    stored_margin="margin_error",
    usual_margin=1.0,
    is_logarithmic=False,
    shown=float,
    shown_difference=lambda share: 100 * share,
    margin=lambda points: points / 100,
    number_format=".2%",
    decides_without_spread=True,
)
SCALES = (PERCENT, POINTS)


# ---- Measures ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredNames:
    """What analysis_results.json and the tables of plain numbers call the parts of a measure."""

    values: str
    mean: str
    deviation: str
    difference: str
    curve: str
    reason_prefix: str
    difference_unit: str  # of the columns difference_UNIT, difference_low_UNIT, difference_high_UNIT


@dataclass(frozen=True)
class FigureNames:
    final: str
    curve: str
    by_parameters: str


@dataclass(frozen=True)
class Measure:
    key: str  # `measure:` of a hypothesis
    name: Phrase  # of what a reader is shown
    kinds: tuple[str, ...]  # of runs that are compared by it: gpt, encoder, probe
    scale: Scale
    better: Literal["lower", "higher"]
    value_of: Callable[[Mapping[str, Any]], float | None]  # of a run's result: what is compared
    shown_key: str  # in a run's result
    documentation: tuple[str, str, str]  # of which runs it is, what is tested, its floor: cells of docs/studies.md
    floor: Callable[[Mapping[str, Any], Sequence[int]], Floor | None]  # of a run's result and its labels; None: unknown
    floor_names: tuple[Phrase, Phrase]  # what has learnt nothing, what has learnt little
    record_key: str | None = None  # in a run's metrics, as compared, for its curve
    test: str = "paired_t"  # of analysis.statistics.PAIR_TESTS
    from_predictions: bool = False  # the share of examples that are right: pairs compare by example
    has_difficulties: bool = False  # runs also report it at each difficulty of their probe
    columns: tuple[str, ...] = ("value", "loss", "shown_difference", "p_adjusted", "ratio")  # of the quality table
    words: Mapping[str, Phrase] = field(default_factory=dict)  # its own, in place of the general ones of a report
    own_names: StoredNames | None = None
    own_figures: FigureNames | None = None

    @property
    def has_target(self) -> bool:
        """Whether the time to a target is reported, which is a perplexity."""
        return self.key == LOSS.key

    def cost(self, value: float) -> float:
        """Of a compared value: less is better. Of a share it is the error rate; a difference of costs knows no 1."""
        return value if self.better == "lower" else 1 - value

    def gain(self, difference: float) -> float:
        """A difference of costs as one of values."""
        return difference if self.better == "lower" else 0.0 - difference

    def shown_difference(self, difference: float) -> float:
        """A difference of costs as a reader is shown it."""
        return self.scale.shown_difference(self.gain(difference))

    def drawn_difference(self, difference: float) -> float:
        """On the axis of a figure, where logarithms stay what they are and per cent stand on a second one."""
        return self.gain(difference) if self.scale.is_logarithmic else self.shown_difference(difference)

    def ends(self, low: float | None, high: float | None) -> tuple[float | None, float | None]:
        """The ends of an interval of costs, in the order in which they are shown."""
        return (low, high) if self.better == "lower" else (high, low)

    @property
    def names(self) -> StoredNames:
        parts = {part: f"{self.key}_{part}" for part in ("values", "mean", "deviation", "difference", "curve")}
        usual = StoredNames(**parts, reason_prefix=f"{self.key}_", difference_unit=self.key)
        return self.own_names or usual

    @property
    def figures(self) -> FigureNames:
        return self.own_figures or FigureNames(
            f"final_{self.key}", f"validation_{self.key}", f"{self.key}_by_parameters"
        )


def _number(key: str) -> Callable[[Mapping[str, Any]], float | None]:
    def of(result: Mapping[str, Any]) -> float | None:
        value = result.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        return float(value) if math.isfinite(value) else None

    return of


def share(key: str) -> Callable[[Mapping[str, Any]], float | None]:
    """A number of a result that lies between 0 and 1; None for whatever does not."""
    number = _number(key)

    def of(result: Mapping[str, Any]) -> float | None:
        value = number(result)
        return value if value is not None and 0 <= value <= 1 else None

    return of


LOSS = Measure(
    key="loss",
    name=("perplexity", "困惑度"),
    kinds=("gpt",),
    scale=PERCENT,
    better="lower",
    value_of=_number("val_loss"),
    shown_key="perplexity",
    documentation=(
        "that predict text",
        "paired t, of the losses in nats: m per cent are ln(1 + m/100)",
        "a unigram of the training tokens; little: an interpolated bigram",
    ),
    floor=floors.of_text,
    floor_names=(
        ("a unigram of the training tokens", "训练 token 的一元模型"),
        ("an interpolated bigram of the training tokens", "训练 token 的插值二元模型"),
    ),
    record_key="val_loss",
    columns=("value", "loss", "difference", "shown_difference", "p_adjusted"),
    own_names=StoredNames(
        "losses", "mean_loss", "standard_deviation", "difference", "validation_curve", reason_prefix="",
        difference_unit="nats",
    ),
    own_figures=FigureNames("final_perplexity", "val_ppl_comparison", "perplexity_by_parameters"),
    words={
        "verdicts.method.paired_t": (
            "Differences are treatment minus control in validation loss, paired over seeds; 0.0488 nats are 5 % of "
            "perplexity. A claim is supported when its one-sided paired t test, Holm-adjusted over the confirmatory "
            "hypotheses about losses (here {family}), reaches p <= 0.05; it is refuted when the one-sided 95 % bound, "
            "which is not adjusted, lies beyond it. The interval beside an effect is two-sided, 95 %; the p is the "
            "one that decides, and the others stand in analysis_results.json. Fewer than three pairs give no p-value.",
            "差异为处理组减对照组的验证损失，按随机种子配对；0.0488 nats 相当于困惑度的 5 %。单侧配对 t 检验的 "
            "p 值在 {family} 个验证性假设上作 Holm 校正后不超过 0.05 时判为成立；未经校正的单侧 95 % 界落在另一侧时判为"
            "不成立。效应旁的区间为双侧 95 % 区间；只列出起决定作用的 p 值，其余见 analysis_results.json。不足三对时"
            "不给出 p 值。",
        ),
        "table.quality": (
            "Quality ({scope}): mean ± standard deviation over seeds; difference from {baseline}, paired over seeds, "
            "with its 95 % interval; adjusted p where a hypothesis compares the arm with {baseline}. The perplexity is "
            "e to the mean loss.",
            "质量（{scope}）：种子间均值 ± 标准差；与“{baseline}”的差异按种子配对，附 95 % 区间；"
            "仅当有假设将该组与“{baseline}”比较时给出校正 p 值。困惑度为 e 的平均损失次幂。",
        ),
        "table.tuned": (
            "Tuned per arm on one grid, judged on the tuning split: {keys}.",
            "各实验组在同一网格上调优，以调优集评判：{keys}。",
        ),
        "axis.difference": ("difference in loss (nats)", "损失差异 (nats)"),
        "caption.final": (
            "Final validation perplexity. Small marks: single seeds; large: e to the mean loss, with the 95 % interval "
            "of the mean over seeds where there are two or more.",
            "最终验证困惑度。小标记为单个种子；大标记为 e 的平均损失次幂，有两个及以上种子时附均值的 95 % 区间。",
        ),
        "caption.differences": (
            "Paired differences, treatment minus control, with 95 % intervals; small marks: single seeds. Dashed: the "
            "margin; shaded: where the claim would hold. Left of 0 is better.",
            "配对差异（处理组减对照组）及 95 % 区间；小标记为单个种子。虚线为界值，阴影为假设成立的区域。"
            "小于 0 表示更好。",
        ),
    },
)  # fmt: skip
ACCURACY = Measure(
    key="accuracy",
    name=("accuracy", "准确率"),
    kinds=("encoder",),
    scale=POINTS,
    better="higher",
    value_of=share("accuracy"),
    shown_key="accuracy",
    documentation=(
        "that classify (`preset: fine-tuning`)",
        "paired t, of the error rates, 1 − accuracy",
        "the most common label of the reported split",
    ),
    floor=floors.of_labels,
    floor_names=(("naming the most common label always", "总是回答最常见的类别"), ("", "")),
    record_key="accuracy",
    from_predictions=True,
    own_names=StoredNames(
        "accuracies", "accuracy", "accuracy_deviation", "error_difference", "accuracy_curve",
        reason_prefix="accuracy_", difference_unit="accuracy",
    ),
    words={
        "table.tuned": (
            "Tuned per arm on one grid, chosen by the loss on the tuning split (which is finer than accuracy there): "
            "{keys}.",
            "各实验组在同一网格上调优，按调优集上的损失选取（比该集上的准确率更细）：{keys}。",
        ),
    },
)  # fmt: skip
PROBE_ACCURACY = Measure(
    key="probe_accuracy",
    name=("accuracy", "准确率"),
    kinds=("probe",),
    scale=POINTS,
    better="higher",
    value_of=share("accuracy"),
    shown_key="accuracy",
    documentation=(
        "on a probe (`data: probe:TASK`)",
        "paired t, of the error rates, 1 − accuracy; the mean over the difficulties, or that at one `difficulty`",
        "a guess among all tokens; little: among what the context offers",
    ),
    floor=floors.of_guesses,
    floor_names=(
        ("a guess among all tokens", "在全部 token 中猜测"),
        ("a guess among what the context offers", "在上下文给出的候选中猜测"),
    ),
    record_key="accuracy",
    has_difficulties=True,
)

MEASURES: dict[str, Measure] = {measure.key: measure for measure in (LOSS, ACCURACY, PROBE_ACCURACY)}


def measures_of(kind: str) -> list[Measure]:
    """Those that runs of a kind are compared by, the usual one first."""
    return [measure for measure in MEASURES.values() if kind in measure.kinds]


def documentation() -> Iterator[str]:
    """The table of docs/studies.md."""
    yield "| `measure` | for runs | better | margin | tested by | floor |"
    yield "|---|---|---|---|---|---|"
    for each in MEASURES.values():
        runs, tested, floor = each.documentation
        better = f"{each.better} {each.name[0]}"
        yield f"| `{each.key}` | {runs} | {better} | `{each.scale.margin_key}` | {tested} | {floor} |"
