"""What reports of studies with looks say, in both languages."""

from __future__ import annotations

from oelm.core.measures import Phrase

LOOK_WORDS: dict[str, Phrase] = {
    # In the box of a verdict.
    "interval_of.looks": (
        "{middle} (95 % interval over all looks {interval})",
        "{middle}（对各次检视同时成立的 95 % 区间 {interval}）",
    ),
    "box.look": ("decided", "判定"),
    "box.look.settled": (
        "after {seeds} of {planned} seeds; no further ones are needed",
        "{planned} 个种子中的 {seeds} 个之后；不再需要更多种子",
    ),
    "box.look.open": (
        "not yet, after {seeds} of {planned} seeds",
        "{planned} 个种子中的 {seeds} 个之后尚未判定",
    ),
    "box.look.last": (
        "after all {planned} seeds",
        "全部 {planned} 个种子之后",
    ),
    "box.look.before": (
        "not yet; first after {seeds} of {planned} seeds",
        "尚未判定；首次在 {planned} 个种子中的 {seeds} 个之后",
    ),
    # Below the verdicts, and above them while runs are missing.
    "verdicts.method.looks": (
        "This study has looks: Holm's correction is over sequential p-values, and a claim is refuted at the level of "
        "the look, not at 5 % at each (see Looks).",
        "本实验设有检视：Holm 校正针对序贯 p 值；判为不成立时采用该次检视的水平，而不是每次都用 5 %（见“检视”）。",
    ),
    "partial.numbers.looks": (
        "Every number below comes from the finished runs alone. What a look has decided stays decided; other claims "
        "that seeds decide are undecided until a look decides them (see Looks).",
        "以下数值只来自已完成的运行。检视已作出的判定不再改变；其余由种子判定的假设在后续检视作出判定之前"
        "均为“尚无定论”（见“检视”）。",
    ),
    "unfinished.none.looks": (
        "Every planned run has a result, except those that looks made unnecessary (see Looks).",
        "除检视后不再需要的运行（见“检视”）外，所有计划的运行均有结果。",
    ),
    # The section.
    "heading.looks": ("Looks", "检视"),
    "looks.sentence": (
        "The claims that seeds decide are looked at after so many seeds of each arm, in the declared order: {looks}. A "
        "look is at all open claims at once, when every run that it needs has ended. What a look decides stays "
        "decided; later seeds, if there are any, are shown in the tables and decide nothing.",
        "由种子判定的假设在每个实验组完成以下数目的种子后检视（按声明的顺序）：{looks}。每次检视同时针对所有尚未判定的假设，"
        "待所需运行全部结束后进行。检视作出的判定不再改变；其后的种子若存在，只在表中列出，不参与判定。",
    ),
    "looks.table": (
        "What each look found. Spent: how much of the 5 % may have been used by then. Level: what the one-sided "
        "p-value of a test is held to at that look, for a claim that is alone in its family.",
        "各次检视的结果。已用错误率：至此最多可用去的部分（总计 5 %）。水平：该次检视时单侧检验的 p 值"
        "须达到的界限（假设族中仅有一个假设时）。",
    ),
    "looks.name": ("{look} of {of}", "第 {look}／{of} 次"),
    "looks.claim": ("{claim} ({outcome})", "{claim}（{outcome}）"),
    "looks.not_taken": ("not taken yet", "尚未进行"),
    "looks.not_needed": ("not needed", "不再需要"),
    "looks.not_stored": ("not stored", "未存储"),
    "looks.unstored": (
        "Looks that are not stored, so they follow from the present runs: {looks}. oelm run {study} stores them.",
        "下列检视尚未存储，此处按现有的运行得出：{looks}。运行 oelm run {study} 会将其存储。",
    ),
    "looks.next": (
        "Next: look {look}, at {seeds} seeds, for the claims that are still open: {claims}. Runs that it still needs: "
        "{runs} ({flops}).",
        "下一次：{look}检视（{seeds} 个种子），针对尚未判定的假设：{claims}。还需运行 {runs} 次（{flops}）。",
    ),
    "looks.next.timed": (
        "Next: look {look}, at {seeds} seeds, for the claims that are still open: {claims}. Runs that it still needs: "
        "{runs} ({flops}; one after another, at the pace of the finished runs: {time}).",
        "下一次：{look}检视（{seeds} 个种子），针对尚未判定的假设：{claims}。还需运行 {runs} 次"
        "（{flops}；按已完成运行的速度依次运行约需 {time}）。",
    ),
    "looks.all_decided": (
        "No claim is open, so no look is left to take.",
        "所有假设均已了结，无须再检视。",
    ),
    "looks.all_taken": (
        "All looks were taken; still undecided: {claims}.",
        "全部检视均已进行；仍未判定：{claims}。",
    ),
    "looks.saved": (
        "Final runs that are not needed: {runs} of {planned} ({flops}, {share} of the arithmetic of all final runs).",
        "不再需要的最终运行：{planned} 次中的 {runs} 次（{flops}，占全部最终运行计算量的 {share}）。",
    ),
    "looks.nothing_saved": (
        "No run has been saved so far.",
        "至今未节省任何运行。",
    ),
    "looks.arm": (
        "{arm}: {seeds} seeds not needed after look {look}.",
        "{arm}：{look}检视后，其余 {seeds} 个种子不再需要。",
    ),
    "looks.method": (
        "The chance that a false claim is supported at any look is at most 5 %, for all confirmatory claims together. "
        "It is spent as by O'Brien and Fleming (Lan and DeMets): little early, nearly all at the end. A sequential p "
        "is the smallest error rate over all looks at which the claim has been shown by now (1 where that is above "
        "0.3), and Holm's correction is over these. The levels of the t test are exact for normal differences; exact "
        "tests are held to the increments of the spending, which holds for any test. The chance that a true claim is "
        "refuted at any look is at most 5 % for each claim by itself (up to 10 % for one with two bounds whose margin "
        "is far below the spread), spent in the same way and not corrected for the family: a refutation answers the "
        "one claim that was declared. Intervals of differences hold at all looks at once with 95 %; a difference over "
        "a number of seeds that is no look has none. Intervals of single arms are those of a fixed number of seeds.",
        "不成立的假设在任何一次检视中被判为成立的概率，对全部验证性假设合计不超过 5 %。错误率按 O'Brien–Fleming 型函数"
        "（Lan–DeMets）分配：早期很少，大部分留到最后。序贯 p 值是至今已能判为成立的最小总错误率（超过 0.3 时记为 1），"
        "Holm 校正针对这些值。差异服从正态分布时，t 检验的水平是精确的；精确检验采用错误率的增量，对任何检验都有效。"
        "成立的假设在任何一次检视中被判为不成立的概率，对每个假设单独不超过 5 %"
        "（有上下两个界的假设，若界值远小于差异的标准差，最高可达 10 %），分配方式相同，不作多重校正："
        "判为不成立只回答所声明的那一个假设。差异的区间对各次检视同时成立（95 %）；"
        "种子数不等于任何一次检视时，差异不给出区间。"
        "单个实验组的区间按固定种子数计算。",
    ),
    "column.look": ("look", "检视"),
    "column.decided": ("settled", "不再检视"),
    "column.open": ("still open", "尚未判定"),
    "column.taken": ("taken", "时间"),
    "column.spent": ("spent", "已用错误率"),
    "column.level.t": ("level, t test", "水平（t 检验）"),
    "column.level.signs": ("level, sign test", "水平（符号检验）"),
}
