"""What limits a verdict: every reservation with its facts, in a few words and as a sentence, in both languages.

A reservation changes no outcome. It stands right beside it wherever the verdict is shown: box, card, table, text, JSON.
What takes a verdict away is a reason (oelm.study.claims.reasons).
"""

from __future__ import annotations

from dataclasses import dataclass

from oelm.core.measures import Phrase


@dataclass(frozen=True)
class Reservation:
    facts: tuple[str, ...]
    short: Phrase  # beside the outcome in a table, without facts
    sentence: Phrase  # of the facts, and of `quality`, what the measure is called


RESERVATIONS: dict[str, Reservation] = {
    "learnt_little": Reservation(
        ("arms", "reached", "floor"),
        ("has learnt little", "所学甚少"),
        (
            "{arms} has learnt little: its {quality} ({reached}) is not clearly {better} {floor}, which {little} "
            "reaches.",
            "{arms} 所学甚少：其{quality}（{reached}）并不明显{better}于 {floor}（{little}即可达到）。",
        ),
    ),
    "later_pairs": Reservation(
        ("looked", "pairs", "difference"),
        ("later pairs point the other way", "后续配对指向相反"),
        (
            "Decided after {looked} pairs, which binds. All {pairs} pairs that have finished by now have a mean of "
            "{difference}, which points the other way.",
            "结论在 {looked} 对时作出，不再更改。目前已完成的全部 {pairs} 对的均值为 {difference}，指向相反。",
        ),
    ),
    "seen_in_train": Reservation(
        ("share",),
        ("partly on training text", "部分为训练文本"),
        (
            "{share} of the reported text also stands in the training text: this is not a result on unseen text.",
            "所报告的文本有 {share} 也出现在训练文本中：这并非未见文本上的结果。",
        ),
    ),
    "floor_unknown": Reservation(
        ("arms",),
        ("floor unknown", "下限未知"),
        (
            "Floor unknown: what {nothing} reaches was not stored for {arms}, and the data are not here, so it cannot "
            "be said whether anything was learnt.",
            "下限未知：{arms} 未存储{nothing}的水平，且数据不在此处，无法说明是否学到了任何内容。",
        ),
    ),
    "changed": Reservation(
        ("changes",),
        ("changed after the first final run", "首次最终运行后有修改"),
        (
            "Changed after the first final run had started: {changes}. A p-value is valid for the declared plan alone.",
            "首次最终运行启动后的修改：{changes}。p 值只对事先声明的计划有效。",
        ),
    ),
    "results_elsewhere": Reservation(
        ("runs", "differences"),
        ("other results exist", "另有其他结果"),
        (
            "Final runs of these arms that the plan does not have also gave results ({runs}): {differences}. A p-value "
            "is valid for the declared plan alone.",
            "这些组另有不在计划之内的最终运行结果（{runs} 次）：{differences}。p 值只对事先声明的计划有效。",
        ),
    ),
    "chosen_late": Reservation(
        ("arms",),
        ("values chosen late", "取值选定过晚"),
        (
            "The tuned values of {arms} were not stored before the final runs that use them.",
            "{arms} 的调优取值未在使用它们的最终运行之前存储。",
        ),
    ),
    "not_registered": Reservation(
        (),
        ("exploratory: not registered before its runs", "探索性：未在运行前登记"),
        (
            "Exploratory: this study was not registered before its runs, so it cannot be shown that its plan is older "
            "than its results.",
            "探索性：本实验未在运行前登记，无法证明其计划早于结果。",
        ),
    ),
    "carried_rates": Reservation(
        ("sizes",),
        ("at carried rates", "学习率为推得"),
        (
            "At carried rates: the tuned values at {sizes} follow from those of other sizes by a power law, and no "
            "tuning run checked them there.",
            "学习率为推得：{sizes} 的调优值按幂律由其他规模推得，未在这些规模上经调优运行检验。",
        ),
    ),
    "exploratory": Reservation(
        (),
        ("exploratory", "探索性"),
        ("Exploratory: not part of the adjusted family.", "探索性假设，不参与多重校正。"),
    ),
}
