"""What reports of studies with sizes say of them, in both languages, by code."""

from __future__ import annotations

from oelm.core.measures import Phrase

SCALE_WORDS: dict[str, Phrase] = {
    "heading.scale": ("Effect against scale", "效应随规模的变化"),
    "table.main_size": (
        "Tables, curves and figures from here on are about the size {size}, unless they name another; the section on "
        "scale covers every size.",
        "从此处起，除另有说明外，各表、曲线和图均针对规模 {size}；关于规模的一节涵盖所有规模。",
    ),
    "per.parameters": ("the number of parameters", "参数量"),
    "per.tokens": ("the number of training tokens", "训练 token 数"),
    "per.flops": ("the training FLOPs", "训练计算量"),
    "verdicts.method.scale": (
        "A claim about scale is decided by the slope of a line through the sizes: the mean paired difference at each "
        "size against the logarithm of what is doubled. A size counts once, however many seeds it has, because a rate "
        "that fits one size badly shifts all of its seeds alike; so the test has two degrees of freedom fewer than "
        "there are sizes, and needs at least {least} of them. Its p-value belongs to the same family; a claim is "
        "refuted when the one-sided 95 % bound of the slope lies beyond it.",
        "关于规模的假设由一条穿过各规模的直线的斜率判定：各规模的平均配对差异对翻倍量的对数作回归。无论有多少种子，"
        "每个规模只计一次，因为某一规模的学习率不合适会使其所有种子一同偏移；因此检验的自由度为规模数减二，"
        "至少需要 {least} 个规模。其 p 值属于同一检验族；斜率的单侧 95 % 界落在另一侧时判为不成立。",
    ),
    "box.slope": ("change per doubling", "每翻一倍的变化"),
    "box.sizes": ("complete sizes", "完整的规模"),
    "box.sizes_value": ("{done} ({sizes})", "{done}（{sizes}）"),
    "scale.sentence": (
        "Each point is a paired difference from {baseline}, the mean over the same seeds at every size; {better} zero "
        "is better. The interval of a slope counts sizes, not runs.",
        "每个点是与“{baseline}”的配对差异，即各规模上相同种子的均值；比零{better}表示更好。"
        "斜率的区间按规模数而非运行数计算。",
    ),
    "scale.too_few": (
        "No slope over {dial} for {arms}. Complete sizes: {sizes}, and a slope needs at least {least}, because a line "
        "always passes through one or two.",
        "以下实验组没有随{dial}变化的斜率：{arms}。完整的规模仅 {sizes} 个，至少需要 {least} 个，"
        "因为过一两个点总能画出一条直线。",
    ),
    "scale.slopes": (
        "Change of the difference from {baseline} with every doubling, with its 95 % interval: the t interval of the "
        "slope through the sizes.",
        "与“{baseline}”的差异每翻一倍的变化及其 95 % 区间：穿过各规模的直线斜率的 t 区间。",
    ),
    "scale.by_size": (
        "Every size: parameters, tokens and arithmetic of one run; mean over seeds; difference from {baseline} at the "
        "same size, paired over seeds, with its 95 % interval over the seeds of that size alone.",
        "各规模：单次运行的参数量、token 数和计算量；种子间均值；与同规模的“{baseline}”的差异按种子配对，"
        "附仅基于该规模种子的 95 % 区间。",
    ),
    "scale.laws": (
        "Loss against training FLOPs over the complete sizes, as a power law without a floor: the loss is proportional "
        "to the FLOPs to the power of the exponent. It describes these sizes, no others.",
        "已完成各规模的损失与训练计算量之间的幂律（不含下限）：损失与计算量的该指数次幂成正比。只描述这些规模。",
    ),
    "scale.multipliers": (
        "How many times the tokens, and the training FLOPs, an arm needs for the loss that {baseline} reaches at each "
        "budget, with 95 % intervals that count budgets. *: more tokens than were tried, so an extrapolation.",
        "各预算下，实验组达到“{baseline}”的损失所需的 token 数和训练计算量的倍数，95 % 区间按预算数计算。"
        "*：超出已试验的 token 数，属外推。",
    ),
    "scale.multipliers_beyond": (
        "Multipliers marked with * assume that the fitted power law of the arm goes on beyond the largest budget.",
        "带 * 的倍数假定该组拟合的幂律在最大预算之外仍然成立。",
    ),
    "scale.no_forecast": (
        "No forecast at {size} for {arms}. Complete sizes: {sizes}, and a forecast needs at least {least}.",
        "不在 {size} 上预测以下实验组：{arms}。完整的规模仅 {sizes} 个，至少需要 {least} 个。",
    ),
    "scale.wide_forecast": (
        "No forecast at {size} for {arms}: its 95 % interval would be more than {widest} points wide.",
        "不在 {size} 上给出以下实验组的预测：{arms}。其 95 % 预测区间宽于 {widest} 个百分点。",
    ),
    "scale.extrapolation": (
        "Extrapolation: nothing was run at the forecast sizes. A forecast assumes that the line through the sizes goes "
        "on, with the same data and vocabulary ({data}): losses per token of two vocabularies cannot be compared.",
        "外推：预测的规模并未实际运行。预测假定穿过各规模的直线继续成立，且数据和词表相同（{data}）："
        "不同词表的每 token 损失不可比较。",
    ),
    "scale.forecasts": (
        "Forecast of the difference from {baseline}, with the 95 % prediction interval of a mean over as many seeds; "
        "and a check: the largest size forecast from the others, and what was observed there.",
        "与“{baseline}”的差异的预测及 95 % 预测区间（相同种子数的均值）；并作检验：用其余规模预测最大的规模，"
        "与实际观测对照。",
    ),
    "scale.covered": ("inside", "在区间内"),
    "scale.not_covered": ("outside", "在区间外"),
    "scale.per_doubling": ("{change} per doubling", "每翻一倍 {change}"),
    "column.budget": ("tokens of the baseline", "基线的 token 数"),
    "column.budgets": ("budgets", "预算数"),
    "column.times_tokens": ("tokens", "token 数"),
    "column.times_flops": ("FLOPs", "计算量"),
    "column.forecast_size": ("forecast at", "预测规模"),
    "column.predicted": ("predicted", "预测"),
    "column.prediction_interval": ("95 % prediction interval", "95 % 预测区间"),
    "column.left_out": ("left out", "留出"),
    "column.observed": ("observed", "观测"),
    "tuning.carried": (
        "{arm}: {values}, not tuned at this size but carried over from {sizes} by a power law of the {dial} "
        "(exponent: {exponents}).",
        "{arm}：{values}，未在该规模上调优，而是按{dial}的幂律由 {sizes} 推得（指数：{exponents}）。",
    ),
    "column.size": ("size", "规模"),
    "column.sizes": ("sizes", "规模数"),
    "column.dial": ("varied", "变化项"),
    "column.doubled": ("doubled", "翻倍量"),
    "column.slope": ("per doubling", "每翻一倍"),
    "column.exponent": ("exponent", "指数"),
    "dial.width": ("width", "宽度"),
    "dial.steps": ("training steps", "训练步数"),
    "dial.named": ("named sizes", "指定规模"),
    "axis.per.parameters": ("parameters", "参数量"),
    "axis.per.tokens": ("training tokens", "训练 token 数"),
    "axis.per.flops": ("training FLOPs", "训练计算量 (FLOPs)"),
    "caption.scale": (
        "Effect against scale. Left: paired difference from {baseline} at every size, the mean with the 95 % interval "
        "over its seeds, and the line through the sizes with its 95 % band, which counts sizes. Right: loss against "
        "training FLOPs, with the fitted power law. Dashed: extrapolation, with the 95 % prediction interval.",
        "效应随规模的变化。左：各规模上与“{baseline}”的配对差异（均值及种子间 95 % 区间），以及穿过各规模的直线及其 "
        "95 % 带（按规模数计算）。右：损失与训练计算量的关系及拟合的幂律。虚线为外推，附 95 % 预测区间。",
    ),
}
