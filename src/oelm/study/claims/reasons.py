"""Why a verdict is what it is: every reason with the facts that stand beside it and its sentence in both languages.

The row of a kind in kinds.KINDS names the reasons of its outcomes; the others here say why nothing can be decided yet.
A confounded verdict keeps the reason of the outcome it would have had.
"""

from __future__ import annotations

from dataclasses import dataclass

from oelm.core.measures import Phrase


@dataclass(frozen=True)
class Reason:
    facts: tuple[str, ...]
    # Of the facts, of `quality`, what the measure is called, and of what a verdict on tested pairs consists of:
    # `effect` (direction, size, interval), `found` (where that lies to the bound) and `p` (the one that decides).
    sentence: Phrase


_FOUND: Phrase = ("{effect}, {found}; {p}.", "{effect}，{found}；{p}。")
_ALL_ALIKE: Phrase = (
    "{effect}, exactly the same in all {pairs} pairs, {found}; {p}.",
    "{effect}（{pairs} 对完全相同），{found}；{p}。",
)

REASONS: dict[str, Reason] = {
    # Of quality. `difference` is the mean as it is shown, `bound` the one-sided bound that decides.
    "shown": Reason(("pairs", "difference", "margin"), _FOUND),
    "contradicted": Reason(("pairs", "difference", "margin", "bound"), _FOUND),
    "not_shown": Reason(("pairs", "difference", "margin"), _FOUND),
    "run_failed": Reason(
        ("pairs", "apart", "treatment", "control", "difference", "median", "within"),  # treatment, control: seeds
        (
            "A run failed, or stands apart from the others of its arm: seeds of the treatment: {treatment}; of the "
            "control: {control}. {apart} of {pairs} pairs lie far outside the rest, so their mean ({difference}) "
            "decides nothing. The median is {median}; {within} of {pairs} pairs lie within what the claim allows.",
            "有运行失败，或与同组其他运行相差悬殊：处理组种子 {treatment}；对照组种子 {control}。{pairs} 对中有 "
            "{apart} 对远离其余各对，均值（{difference}）不足以判定。中位数为 {median}；"
            "{within} 对在假设允许的范围之内。",
        ),
    ),
    "nothing_learnt": Reason(
        ("arms", "reached", "floor"),  # controls that are not clearly beyond the floor; the first of them and its floor
        (
            "Nothing learnt yet: the {quality} of {arms} ({reached}) is not clearly {better} the floor of {floor}, "
            "which {nothing} reaches, so a difference from it decides nothing.",
            "尚未学到任何内容：{arms} 的{quality}（{reached}）并不明显{better}于下限 {floor}（{nothing}即可达到），"
            "与它的差异不足以判定。",
        ),
    ),
    "no_longer_shown": Reason(
        ("pairs", "difference", "margin"),
        (
            "{effect}, which is not within what the claim allows: the pairs of an earlier look showed it, but all "
            "{pairs} pairs by now do not.",
            "{effect}，不在假设允许的范围之内：较早一次检视的配对曾表明假设成立，但至今全部 {pairs} 对并非如此。",
        ),
    ),
    # Of quality, by the exact sign-flip test: shares whose differences have no spread.
    "same_shown": Reason(("pairs", "difference", "margin"), _ALL_ALIKE),
    "same_contradicted": Reason(("pairs", "difference", "margin"), _ALL_ALIKE),
    "same_not_shown": Reason(("pairs", "difference", "margin"), _ALL_ALIKE),
    # Of studies with looks.
    "look_waits": Reason(
        ("seeds",),
        (
            "Not looked at yet: the first look, at {seeds} seeds of each arm, waits until every run that it needs has "
            "ended.",
            "尚未检视：首次检视使用每个实验组的 {seeds} 个种子，待所需运行全部结束后进行。",
        ),
    ),
    "futile": Reason(  # of looks that versions up to 0.5.0 took with `futility: true`
        ("pairs", "last"),
        (
            "Given up after {pairs} pairs: if further pairs are like these, the chance to decide it either way by the "
            "last look, at {last} seeds, is below 5 %. It is neither shown nor contradicted.",
            "{pairs} 对后放弃：若后续配对与已有的相似，到最后一次检视（{last} 个种子）时能作出判定的概率低于 5 %。"
            "假设既未判为成立，也未判为不成立。",
        ),
    ),
    # Of a contrast: `difference` is the paired difference at its `size` less that at the size `against`.
    "contrast_shown": Reason(("pairs", "difference", "margin"), _FOUND),
    "contrast_contradicted": Reason(("pairs", "difference", "margin", "bound"), _FOUND),
    "contrast_unclear": Reason(("pairs", "difference", "margin"), _FOUND),
    # Of scale. `slope` is the change of the difference with every doubling of what `per` says, `bound` the one-sided
    # bound that decides.
    "trend_shown": Reason(("sizes", "slope", "margin", "per"), _FOUND),
    "trend_contradicted": Reason(("sizes", "slope", "margin", "per", "bound"), _FOUND),
    "trend_unclear": Reason(("sizes", "slope", "margin", "per"), _FOUND),
    "too_few_sizes": Reason(
        ("sizes", "least"),
        (
            "Sizes: {sizes}. A line always passes through one or two of them, so their spread about it cannot be "
            "estimated; a slope needs at least {least}.",
            "仅有 {sizes} 个规模。过一两个点总能画出一条直线，无法估计偏离直线的程度；"
            "估计斜率至少需要 {least} 个规模。",
        ),
    ),
    "sizes_open": Reason(
        ("finished", "planned", "open"),  # the last: names of sizes
        (
            "Pairs are missing: {finished} of {planned} sizes have all of theirs. Open: {open}.",
            "缺少配对：{planned} 个规模中已有 {finished} 个完成全部配对。未完成：{open}。",
        ),
    ),
    "trend_without_spread": Reason(
        ("sizes", "slope", "per"),
        (
            "The differences at {sizes} sizes lie exactly on a line ({slope} per doubling of {per}), so chance cannot "
            "be estimated.",
            "{sizes} 个规模的差异恰好在一条直线上（{per}每翻一倍变化 {slope}），无法衡量偶然性。",
        ),
    ),
    # Of solving. `ahead`: pairs in which the treatment alone solves it, or solves it sooner; `behind`: the control.
    "solves_more": Reason(
        ("pairs", "ahead", "behind", "tied", "neither"),
        (
            "Only the treatment solves it with {ahead} seeds, only the control with {behind}: more often than not; "
            "{p}. Left out: both {tied}, neither {neither}.",
            "仅处理组解出的种子 {ahead} 个，仅对照组解出的 {behind} 个：前者更多；{p}。未计入：都解出 {tied} 个，都未"
            "解出 {neither} 个。",
        ),
    ),
    "solves_fewer": Reason(
        ("pairs", "ahead", "behind", "tied", "neither"),
        (
            "Only the control solves it with {behind} seeds, only the treatment with {ahead}: the other way round; "
            "{p}. Left out: both {tied}, neither {neither}.",
            "仅对照组解出的种子 {behind} 个，仅处理组解出的 {ahead} 个：方向相反；{p}。未计入：都解出 {tied} 个，都未"
            "解出 {neither} 个。",
        ),
    ),
    "solved_unclear": Reason(
        ("pairs", "ahead", "behind", "tied", "neither"),
        (
            "Only the treatment solves it with {ahead} seeds, only the control with {behind}, {found}; {p}. Left "
            "out: both {tied}, neither {neither}.",
            "仅处理组解出的种子 {ahead} 个，仅对照组解出的 {behind} 个，{found}；{p}。未计入：都解出 {tied} 个，都未"
            "解出 {neither} 个。",
        ),
    ),
    "solves_sooner": Reason(
        ("pairs", "ahead", "behind", "tied", "neither", "interval"),
        (
            "The treatment solves it sooner in {ahead} pairs, the control in {behind}: ahead more often than behind; "
            "{p}. Left out: {tied} tied, {neither} in which neither solves it (steps are known to within {interval}).",
            "处理组先解出 {ahead} 对，对照组先解出 {behind} 对：领先多于落后；{p}。未计入：同时解出 {tied} 对，都未解"
            "出 {neither} 对（步数精确到 {interval} 步）。",
        ),
    ),
    "solves_later": Reason(
        ("pairs", "ahead", "behind", "tied", "neither", "interval"),
        (
            "The control solves it sooner in {behind} pairs, the treatment in {ahead}: behind more often than ahead; "
            "{p}. Left out: {tied} tied, {neither} in which neither solves it (steps are known to within {interval}).",
            "对照组先解出 {behind} 对，处理组先解出 {ahead} 对：落后多于领先；{p}。未计入：同时解出 {tied} 对，都未解"
            "出 {neither} 对（步数精确到 {interval} 步）。",
        ),
    ),
    "steps_unclear": Reason(
        ("pairs", "ahead", "behind", "tied", "neither", "interval"),
        (
            "The treatment solves it sooner in {ahead} pairs, the control in {behind}, {found}; {p}. Left out: {tied}"
            " tied, {neither} in which neither solves it (steps are known to within {interval}).",
            "处理组先解出 {ahead} 对，对照组先解出 {behind} 对，{found}；{p}。未计入：同时解出 {tied} 对，都未解出 "
            "{neither} 对（步数精确到 {interval} 步）。",
        ),
    ),
    "too_few_informative": Reason(
        ("pairs", "informative", "least", "tied", "neither"),
        (
            "Informative pairs: {informative} of {pairs}, and fewer than {least} decide nothing (tied: {tied}; "
            "neither solves it: {neither}).",
            "{pairs} 对中只有 {informative} 对提供信息，不足 {least} 对无法判定"
            "（相同 {tied} 对，都未解出 {neither} 对）。",
        ),
    ),
    "no_longer_ahead": Reason(
        ("pairs", "ahead", "behind", "tied", "neither"),
        (
            "The pairs of an earlier look showed it, but all {pairs} pairs by now do not: the treatment is ahead in "
            "{ahead}, the control in {behind} (tied: {tied}, neither solves it: {neither}).",
            "较早一次检视的配对曾表明假设成立，但至今全部 {pairs} 对并非如此：处理组领先 {ahead} 对，对照组领先 "
            "{behind} 对（相同 {tied} 对，都未解出 {neither} 对）。",
        ),
    ),
    "no_such_difficulty": Reason(
        ("difficulty", "reported"),
        (
            "The runs do not report accuracy at difficulty {difficulty}; they report it at: {reported}.",
            "各运行未报告难度 {difficulty} 的准确率；已报告的难度：{reported}。",
        ),
    ),
    # Of quality, but undecided for want of something to decide by.
    "zero_variance": Reason(
        ("pairs", "difference"),
        (
            "All {pairs} pairs differ by exactly the same amount ({difference}), so chance cannot be estimated.",
            "{pairs} 对的差异完全相同（{difference}），无法衡量偶然性。",
        ),
    ),
    "too_few_pairs": Reason(
        ("pairs", "least"),
        (
            "Paired seeds: {pairs}, too few to distinguish a difference from chance; a test needs at least {least}.",
            "仅有 {pairs} 对种子，无法区分差异与偶然；检验至少需要 {least} 对。",
        ),
    ),
    "incomplete": Reason(
        ("pairs", "planned", "treatment", "control"),  # the last two: state -> seeds that are not finished
        (
            "Runs are missing: {pairs} of {planned} pairs are finished. Treatment: {treatment}. Control: {control}.",
            "缺少运行：{planned} 对中已完成 {pairs} 对。处理组：{treatment}。对照组：{control}。",
        ),
    ),
    "tuning_unfinished": Reason(
        ("finished", "planned"),  # tuning runs
        (
            "Tuning is not finished: {finished} of {planned} tuning runs are finished.",
            "调优尚未结束：{planned} 次调优运行中已完成 {finished} 次。",
        ),
    ),
    "tuning_diverged": Reason(
        ("arms",),
        (
            "Every point of the grid diverged for {arms}, so there is nothing to compare.",
            "{arms} 在网格的所有取值上均发散，无从比较。",
        ),
    ),
    "diverged": Reason(
        ("pairs", "planned", "treatment", "control"),  # the last two: seeds that diverged
        (
            "Some runs diverged, so only {pairs} of {planned} pairs remain. Seeds of the treatment: {treatment}; of "
            "the control: {control}.",
            "部分运行发散，{planned} 对中剩 {pairs} 对。处理组种子：{treatment}。对照组种子：{control}。",
        ),
    ),
    "all_diverged": Reason(  # every run of the treatment, none of the control: infinitely worse, whatever that means
        ("planned",),
        (
            "All {planned} runs of the treatment diverged and none of the control.",
            "处理组的 {planned} 次运行全部发散，对照组没有发散。",
        ),
    ),
    # Of parameters. `percent`: fewer trainable ones than the control, in per cent of the control's.
    "enough_frozen": Reason(
        ("frozen", "least_frozen", "percent", "trainable", "control_trainable"),
        (
            "{frozen} parameters are never trained, at least {least_frozen} were required; {percent} fewer are "
            "trained ({trainable} against {control_trainable}).",
            "有 {frozen} 个参数始终不变，要求至少 {least_frozen} 个；可训练参数减少 {percent}（{trainable} 对 "
            "{control_trainable}）。",
        ),
    ),
    "too_few_frozen": Reason(
        ("frozen", "least_frozen", "percent", "trainable", "control_trainable"),
        (
            "Only {frozen} parameters are never trained, at least {least_frozen} were required; {percent} fewer are "
            "trained ({trainable} against {control_trainable}).",
            "只有 {frozen} 个参数始终不变，要求至少 {least_frozen} 个；可训练参数减少 {percent}（{trainable} 对 "
            "{control_trainable}）。",
        ),
    ),
    "enough_fewer": Reason(
        ("fewer", "least_fewer", "percent", "trainable", "control_trainable"),
        (
            "{fewer} fewer parameters are trained, at least {least_fewer} were required: {percent} ({trainable} "
            "against {control_trainable}).",
            "可训练参数减少 {fewer} 个，要求至少减少 {least_fewer} 个：减少 {percent}（{trainable} 对 "
            "{control_trainable}）。",
        ),
    ),
    "too_few_fewer": Reason(
        ("fewer", "least_fewer", "percent", "trainable", "control_trainable"),
        (
            "Only {fewer} fewer parameters are trained, at least {least_fewer} were required: {percent} ({trainable} "
            "against {control_trainable}).",
            "可训练参数只减少 {fewer} 个，要求至少减少 {least_fewer} 个：减少 {percent}（{trainable} 对 "
            "{control_trainable}）。",
        ),
    ),
    "counts_disagree": Reason(  # undecided: parameters.json and the closed form
        ("computed", "stored"),
        (
            "The counts disagree: {computed} frozen by the config, {stored} counted in the runs.",
            "计数不一致：按配置应冻结 {computed} 个，运行中统计为 {stored} 个。",
        ),
    ),
    # Of speed. `percent`: change of the time per step.
    "faster": Reason(
        ("blocks", "percent"),
        (
            "Over {blocks} interleaved blocks the time per step changed by {percent}; the whole interval is below 1.",
            "交错测量 {blocks} 个区组，每步用时变化 {percent}，区间全部小于 1。",
        ),
    ),
    "not_faster": Reason(
        ("blocks", "percent"),
        (
            "Over {blocks} interleaved blocks the time per step changed by {percent}; the whole interval is above 1.",
            "交错测量 {blocks} 个区组，每步用时变化 {percent}，区间全部大于 1。",
        ),
    ),
    "speed_unclear": Reason(
        ("blocks", "percent"),
        (
            "Over {blocks} interleaved blocks the time per step changed by {percent}; the interval contains 1.",
            "交错测量 {blocks} 个区组，每步用时变化 {percent}，区间包含 1。",
        ),
    ),
    "no_bench": Reason(
        (),
        (
            "Speed was not measured. The times of the runs cannot be compared; measure with oelm bench.",
            "尚未测量速度。各运行的用时不能用于比较，请使用 oelm bench 测量。",
        ),
    ),
    "bench_damaged": Reason(
        ("line",),
        (
            "The bench is damaged; measure again with oelm bench. {line}",
            "oelm bench 的测量结果已损坏，请重新测量。{line}",
        ),
    ),
    "bench_other_config": Reason(
        ("differences", "study"),  # an arm is no longer what was measured
        (
            "The bench measured another config: {differences}; measure again with oelm bench {study}.",
            "基准测量属于另一配置：{differences}；请重新测量：oelm bench {study}。",
        ),
    ),
    "machine_busy": Reason(
        ("blocks", "quiet", "least"),  # too few of the blocks were undisturbed
        (
            "The machine was busy: {quiet} of {blocks} blocks were undisturbed, and at least {least} are needed. "
            "Measure again when nothing else is running.",
            "机器繁忙：{blocks} 个区组中只有 {quiet} 个未受干扰，至少需要 {least} 个。请在没有其他任务时重新测量。",
        ),
    ),
    "too_few_blocks": Reason(
        ("blocks", "least"),
        (
            "Undisturbed blocks: {blocks}, too few to decide anything; at least {least} are needed.",
            "未受干扰的区组仅 {blocks} 个，不足以下结论，至少需要 {least} 个。",
        ),
    ),
}
