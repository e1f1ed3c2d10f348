"""Every sentence and label of a report, in both languages, by code. Formatted numbers come in as facts."""

from __future__ import annotations

from collections.abc import Mapping

from oelm.reporting.classification_words import CLASSIFICATION_WORDS, Phrase
from oelm.study.declaration import Language

# ---- The frame -----------------------------------------------------------------------------------------------------

_FRAME: dict[str, Phrase] = {
    "kicker": ("Study report", "对比实验报告"),
    "contents": ("Contents", "目录"),
    "list_comma": (", ", "、"),
    "list_semicolon": ("; ", "；"),
    "heading.verdicts": ("Verdicts", "假设验证"),
    "heading.table": ("Results", "实验结果"),
    "heading.curves": ("Learning curves", "训练曲线"),
    "heading.learning_rate": ("Learning rate", "学习率"),
    "heading.parameters": ("Parameters", "参数统计"),
    "heading.speed": ("Speed", "训练速度"),
    "heading.target": ("To the target perplexity", "达到目标困惑度的代价"),
    "heading.tuning": ("Tuning", "超参数调优"),
    "heading.differences": ("Paired differences", "配对差异"),
    "heading.decomposition": ("Ablation", "消融分析"),
    "heading.memory": ("Memory", "显存与内存"),
    "heading.conclusions": ("Conclusions and next steps", "结论与建议"),
    "heading.confounds": ("Confounds", "混杂因素"),
    "heading.unfinished": ("Runs without a result", "没有结果的运行"),
    "heading.provenance": ("Provenance", "来源与复现信息"),
    "heading.cite": ("How to cite", "引用"),
}

# ---- What is missing, said first -----------------------------------------------------------------------------------

_COMPLETENESS: dict[str, Phrase] = {
    "partial.title": ("This study is not complete", "本实验尚未完成"),
    "partial.empty": (
        "Nothing has run yet: {planned} final runs are planned. Start them with: oelm run {study}",
        "尚未运行任何实验：计划最终运行 {planned} 次。启动命令：oelm run {study}",
    ),
    "partial.final": (
        "Final runs finished: {finished} of {planned}.",
        "计划的 {planned} 次最终运行中已完成 {finished} 次。",
    ),
    "partial.tuning": (
        "Tuning is not over: {finished} of {planned} tuning runs have finished. "
        "Final runs start when every arm has its value.",
        "调优尚未结束：{planned} 次调优运行中已完成 {finished} 次。各实验组的取值确定后才开始最终运行。",
    ),
    "partial.arm": ("{arm}: no result for seed {seeds} ({state})", "{arm}：随机种子 {seeds} 没有结果（{state}）"),
    "partial.numbers": (
        "Every number below comes from the finished runs alone. A verdict that lacks runs is undecided.",
        "以下数值只来自已完成的运行；缺少运行的假设一律判为“尚无定论”。",
    ),
    "state.missing": ("not started", "未启动"),
    "state.queued": ("waiting", "排队中"),
    "state.running": ("running", "运行中"),
    "state.interrupted": ("interrupted", "已中断"),
    "state.finished": ("finished", "已完成"),
    "state.failed": ("failed", "失败"),
    "state.diverged": ("diverged", "发散"),
    "stage.final": ("final", "最终"),
    "stage.tuning": ("tuning", "调优"),
}

# ---- Verdicts ------------------------------------------------------------------------------------------------------

_VERDICTS: dict[str, Phrase] = {
    "outcome.supported": ("supported", "成立"),
    "outcome.refuted": ("refuted", "不成立"),
    "outcome.undecided": ("undecided", "尚无定论"),
    "outcome.confounded": ("confounded", "受混杂影响"),
    "verdicts.none": (
        "The study states no hypothesis, so the numbers below are a description, not a test.",
        "本实验未声明任何假设，以下数值仅为描述，不构成检验。",
    ),
    "verdicts.summary": ("Hypotheses: {outcomes}.", "假设检验结果：{outcomes}。"),
    "verdicts.outcome_count": ("{count} {outcome}", "{outcome} {count} 个"),
    "verdicts.method": (
        "Differences are treatment minus control in validation loss, paired over seeds; 0.0488 nats are 5 % of "
        "perplexity. A claim is supported when its one-sided paired t test, Holm-adjusted over the confirmatory "
        "hypotheses about losses (here {family}), reaches p <= 0.05; it is refuted when the one-sided 95 % bound, "
        "which is not adjusted, lies beyond it. The exact sign-flip test stands beside; with few pairs it cannot "
        "become small. Fewer than three pairs give no p-value.",
        "差异为处理组减对照组的验证损失，按随机种子配对；0.0488 nats 相当于困惑度的 5 %。单侧配对 t 检验的 "
        "p 值在 {family} 个验证性假设上作 Holm 校正后不超过 0.05 时判为支持；未经校正的单侧 95 % 界落在另一侧时判为"
        "否定。并列出精确符号翻转检验；对数少时它不可能很小。不足三对时不给出 p 值。",
    ),
    "criterion.not_worse": (
        "{treatment}: perplexity at most {margin} above that of {control}",
        "“{treatment}”的困惑度最多比“{control}”高 {margin}",
    ),
    "criterion.equivalent": (
        "{treatment}: perplexity within {margin} of that of {control}, either way",
        "“{treatment}”与“{control}”的困惑度相差不超过 {margin}",
    ),
    "criterion.better": (
        "{treatment}: perplexity below that of {control}",
        "“{treatment}”的困惑度低于“{control}”",
    ),
    "criterion.better_by": (
        "{treatment}: perplexity below that of {control} by more than {margin}",
        "“{treatment}”的困惑度比“{control}”低 {margin} 以上",
    ),
    "criterion.fewer_parameters": (
        "{treatment}: at least {least_frozen} parameters never move (compared with {control})",
        "“{treatment}”中至少有 {least_frozen} 个参数始终不变（与“{control}”相比）",
    ),
    "criterion.faster": (
        "{treatment}: a step takes less time than one of {control}, measured by oelm bench",
        "“{treatment}”每步用时少于“{control}”（由 oelm bench 测量）",
    ),
    "box.criterion": ("passes when", "通过标准"),
    "box.fails_when": ("fails when", "判为不成立的条件"),
    "box.difference": ("difference", "差异"),
    "box.perplexity": ("in perplexity", "困惑度变化"),
    "box.margin": ("margin", "界值"),
    "box.margin_value": ("{percent} ({nats} nats)", "{percent}（{nats} nats）"),
    "box.p": ("p", "p 值"),
    "box.p_value": ("{p} by the t test", "t 检验 {p}"),
    "box.p_adjusted": ("{p} Holm-adjusted", "Holm 校正后 {p}"),
    "box.sign_flip": ("{p} by sign flips", "符号翻转检验 {p}"),
    "box.seeds": ("paired seeds", "配对种子数"),
    "box.seeds_value": ("{done} of {planned}", "{done}／{planned}"),
    "box.ratio": ("time per step, ratio", "每步用时之比"),
    "box.ratio_value": ("{ratio} {interval}, {rounds} rounds", "{ratio} {interval}，{rounds} 轮"),
    "box.parameters": ("trainable parameters", "可训练参数"),
    "box.frozen": ("frozen parameters", "冻结参数"),
    "box.against": ("{treatment} against {control} ({percent})", "{treatment} 对 {control}（{percent}）"),
    "box.exploratory": ("Exploratory: not part of the adjusted family.", "探索性假设，不参与多重校正。"),
    "box.regardless": (
        "Leaving the confounds aside, the runs would say: {outcome}.",
        "若不考虑混杂因素，结果为：{outcome}。",
    ),
    "box.confound": ("Confound: {confound}", "混杂因素：{confound}"),
    "box.seeds_needed": (
        "About {seeds} paired seeds would decide it.",
        "约需 {seeds} 个配对随机种子才能得出结论。",
    ),
    "interval_of": ("{middle} (95 % interval {interval})", "{middle}（95 % 区间 {interval}）"),
}

# ---- Why a verdict is what it is -----------------------------------------------------------------------------------

_REASONS: dict[str, Phrase] = {
    "reason.shown": (
        "Shown by {pairs} pairs: the perplexity differs by {percent}, significant at the 5 % level.",
        "{pairs} 对结果表明假设成立：困惑度差异为 {percent}，在 5 % 水平上显著。",
    ),
    "reason.contradicted": (
        "Contradicted by {pairs} pairs: the perplexity differs by {percent}; the bound that decides is "
        "{bound_percent}.",
        "{pairs} 对结果与假设相反：困惑度差异为 {percent}，起决定作用的界为 {bound_percent}。",
    ),
    "reason.not_shown": (
        "Neither shown nor contradicted by {pairs} pairs: the perplexity differs by {percent}, too uncertain to place "
        "it on one side.",
        "{pairs} 对结果既不能证实也不能否定：困惑度差异为 {percent}，不确定性过大，无法归于任何一侧。",
    ),
    "reason.too_few_pairs": (
        "Paired seeds: {pairs}, too few to tell a difference from chance; a test needs at least {least}.",
        "仅有 {pairs} 对种子，无法区分差异与偶然；检验至少需要 {least} 对。",
    ),
    "reason.zero_variance": (
        "All {pairs} pairs differ by exactly the same amount ({percent}): there is nothing to measure chance by.",
        "{pairs} 对的差异完全相同（{percent}），无法衡量偶然性。",
    ),
    "reason.incomplete": (
        "Runs are missing: {pairs} of {planned} pairs are finished. Treatment: {treatment}. Control: {control}.",
        "缺少运行：{planned} 对中已完成 {pairs} 对。处理组：{treatment}。对照组：{control}。",
    ),
    "reason.tuning_unfinished": (
        "Tuning is not over: {finished} of {planned} tuning runs are finished.",
        "调优尚未结束：{planned} 次调优运行中已完成 {finished} 次。",
    ),
    "reason.tuning_diverged": (
        "Every point of the grid diverged for {arms}, so there is nothing to compare.",
        "{arms} 在网格的所有取值上均发散，无从比较。",
    ),
    "reason.diverged": (
        "Some runs diverged, so that {pairs} of {planned} pairs remain. Treatment, seeds: {treatment}. Control, seeds: "
        "{control}.",
        "部分运行发散，{planned} 对中剩 {pairs} 对。处理组种子：{treatment}。对照组种子：{control}。",
    ),
    "reason.all_diverged": (
        "All {planned} runs of the treatment diverged and none of the control.",
        "处理组的 {planned} 次运行全部发散，对照组没有发散。",
    ),
    "reason.enough_frozen": (
        "{frozen} parameters never move, at least {least_frozen} were asked for; {percent} fewer train ({trainable} "
        "against {control_trainable}).",
        "有 {frozen} 个参数始终不变，要求至少 {least_frozen} 个；可训练参数减少 {percent}（{trainable} 对 "
        "{control_trainable}）。",
    ),
    "reason.too_few_frozen": (
        "Only {frozen} parameters never move, at least {least_frozen} were asked for; {percent} fewer train "
        "({trainable} against {control_trainable}).",
        "只有 {frozen} 个参数始终不变，要求至少 {least_frozen} 个；可训练参数减少 {percent}（{trainable} 对 "
        "{control_trainable}）。",
    ),
    "reason.counts_disagree": (
        "The counts disagree: {computed} frozen by the config, {stored} counted in the runs.",
        "计数不一致：按配置应冻结 {computed} 个，运行中统计为 {stored} 个。",
    ),
    "reason.faster": (
        "Over {rounds} interleaved rounds the time per step changed by {percent}; the whole interval is below 1.",
        "交错测量 {rounds} 轮，每步用时变化 {percent}，区间全部小于 1。",
    ),
    "reason.not_faster": (
        "Over {rounds} interleaved rounds the time per step changed by {percent}; the whole interval is above 1.",
        "交错测量 {rounds} 轮，每步用时变化 {percent}，区间全部大于 1。",
    ),
    "reason.speed_unclear": (
        "Over {rounds} interleaved rounds the time per step changed by {percent}; the interval contains 1.",
        "交错测量 {rounds} 轮，每步用时变化 {percent}，区间包含 1。",
    ),
    "reason.no_bench": (
        "Speed was not measured. The times of the runs are not a comparison; oelm bench makes one.",
        "尚未测量速度。各运行的用时不能用于比较，请使用 oelm bench 测量。",
    ),
    "reason.too_few_rounds": (
        "Rounds measured: {rounds}, too few for an interval; at least {least} are needed.",
        "仅测量 {rounds} 轮，不足以给出区间，至少需要 {least} 轮。",
    ),
    "seeds_by_state": ("{state}: {seeds}", "{state}：{seeds}"),
    "nothing_missing": ("complete", "完整"),
    "nobody": ("none", "无"),
}

# ---- The table -----------------------------------------------------------------------------------------------------

_TABLE: dict[str, Phrase] = {
    "column.arm": ("arm", "实验组"),
    "column.total": ("parameters", "总参数量"),
    "column.trainable": ("trainable", "可训练参数"),
    "column.frozen": ("frozen", "冻结参数"),
    "column.against_baseline": ("against baseline", "相对基线"),
    "column.learning_rate": ("learning rate", "学习率"),
    "column.seeds": ("seeds", "种子数"),
    "provenance.seeds": ("seeds", "随机种子"),
    "column.perplexity": ("perplexity", "困惑度"),
    "column.loss": ("loss, nats", "损失 (nats)"),
    "column.difference": ("difference, nats", "差异 (nats)"),
    "column.difference_percent": ("in perplexity", "困惑度差异"),
    "column.p_adjusted": ("adjusted p", "校正 p 值"),
    "column.tokens": ("tokens", "token 数"),
    "column.flops": ("arithmetic", "计算量"),
    "column.seconds_per_step": ("per step", "每步用时"),
    "column.memory": ("peak memory", "内存峰值"),
    "column.diverged": ("diverged", "发散"),
    "column.steps": ("steps", "步数"),
    "column.steps_per_hour": ("steps per hour", "步/小时"),
    "column.ratio": ("time ratio", "用时比"),
    "column.interval": ("95 % interval", "95 % 区间"),
    "column.time": ("time", "时间"),
    "column.state": ("state", "状态"),
    "column.stage": ("stage", "阶段"),
    "column.seed": ("seed", "种子"),
    "column.error": ("what happened", "原因"),
    "column.setting": ("what differs", "差异项"),
    "column.treatment": ("treatment", "处理组"),
    "column.control": ("control", "对照组"),
    "column.explained": ("explained by the study", "实验给出的解释"),
    "column.hypothesis": ("hypothesis", "假设"),
    "column.outcome": ("verdict", "结论"),
    "column.start": ("queries and keys", "Q/K 状态"),
    "column.weights": ("weights", "权重"),
    "column.gradients": ("gradients", "梯度"),
    "column.optimizer": ("optimizer", "优化器"),
    "column.sum": ("sum", "合计"),
    "column.step": ("step", "分解"),
    "column.from_to": ("from → to", "对照 → 处理"),
    "column.claim": ("claim", "假设内容"),
    "column.number": ("difference", "差异"),
    "column.reached_by": ("seeds that reached it", "达到的种子数"),
    "table.quality": (
        "Quality: mean ± standard deviation over seeds; difference from {baseline}, paired over seeds, with its "
        "95 % interval; adjusted p where a hypothesis compares the arm with {baseline}. The perplexity is "
        "e to the mean loss.",
        "质量：种子间均值 ± 标准差；与 {baseline} 的差异按种子配对，附 95 % 区间；仅当有假设将该组与 {baseline} "
        "比较时给出校正 p 值。困惑度为 e 的平均损失次幂。",
    ),
    "table.cost": (
        "Cost of one run. Time per step is the mean over the runs and not a comparison of speed (see Speed).",
        "单次运行的代价。每步用时为各运行均值，不能用于比较速度（见“训练速度”）。",
    ),
    "table.baseline": ("baseline", "基线"),
    "table.fixed_learning_rates": (
        "Nothing was tuned, and the arms use different learning rates: {values}.",
        "本实验未做调优，且各实验组学习率不同：{values}。",
    ),
    "table.tuned": (
        "Tuned per arm on one grid, judged on the tuning split: {keys}.",
        "各实验组在同一网格上调优，以调优集评判：{keys}。",
    ),
    "table.other_tuned": (
        "The learning rate was not tuned; the grid covers {keys}.",
        "学习率未调优；调优网格为 {keys}。",
    ),
}

# ---- Figures: axes and captions ------------------------------------------------------------------------------------

_FIGURES: dict[str, Phrase] = {
    "axis.steps": ("training steps", "训练步数"),
    "axis.tokens": ("training tokens", "训练 token 数"),
    "axis.hours": ("training time (h)", "训练时间（小时）"),
    "axis.minutes": ("training time (min)", "训练时间（分钟）"),
    "axis.seconds": ("training time (s)", "训练时间（秒）"),
    "axis.flops": ("arithmetic ({unit})", "计算量（{unit}）"),
    "axis.perplexity": ("validation perplexity", "验证困惑度"),
    "axis.train_loss": ("training loss (nats per token)", "训练损失（nats / token）"),
    "axis.learning_rate": ("learning rate", "学习率"),
    "axis.parameters": ("parameters (millions)", "参数量（百万）"),
    "axis.trainable": ("trainable parameters (millions)", "可训练参数（百万）"),
    "axis.tuning_loss": ("loss on the tuning split (nats)", "调优集损失 (nats)"),
    "axis.difference": ("difference in loss (nats)", "损失差异 (nats)"),
    "axis.difference_percent": ("difference in perplexity (%)", "困惑度差异 (%)"),
    "axis.ratio": ("time per step, ratio to {baseline}", "每步用时与 {baseline} 之比"),
    "axis.memory": ("memory (MiB)", "内存 (MiB)"),
    "axis.peak_memory": ("peak memory of the process (MiB)", "进程内存峰值 (MiB)"),
    "axis.layer": ("layer", "层"),
    "axis.embeddings": ("emb.", "嵌入"),
    "legend.frozen": ("frozen (hatched)", "冻结（斜线）"),
    "legend.margin": ("margin", "界值"),
    "legend.passes": ("supports the claim", "支持假设的区域"),
    "legend.seed": ("one seed", "单个种子"),
    "legend.mean": ("mean, 95 % interval", "均值与 95 % 区间"),
    "legend.weights": ("weights", "权重"),
    "legend.gradients": ("gradients", "梯度"),
    "legend.optimizer": ("optimizer moments", "优化器状态"),
    "figure.not_reached": ("not reached", "未达到"),
    "figure.reached_by": ("{seeds} of {planned} seeds", "{planned} 个种子中的 {seeds} 个"),
    "panel.whole": ("whole run", "全程"),
    "panel.late": ("last half", "后半程"),
    "role.token_embedding": ("token embedding", "词嵌入"),
    "role.position_embedding": ("position embedding", "位置嵌入"),
    "role.query": ("query", "Q（查询）"),
    "role.key": ("key", "K（键）"),
    "role.value": ("value", "V（值）"),
    "role.output": ("attention output", "O（输出）"),
    "role.feed_forward_up": ("feed-forward up", "前馈升维"),
    "role.feed_forward_down": ("feed-forward down", "前馈降维"),
    "role.norm": ("norms", "归一化"),
    "caption.final_perplexity": (
        "Final validation perplexity. Small marks: single seeds; large: e to the mean loss, with the 95 % interval of "
        "the mean over seeds where there are two or more.",
        "最终验证困惑度。小标记为单个种子；大标记为 e 的平均损失次幂，有两个及以上种子时附均值的 95 % 区间。",
    ),
    "caption.val_ppl_comparison": (
        "Validation perplexity against (a) steps, (b) the last half of them, (c) tokens and (d) training time. Lines: "
        "mean over finished seeds; bands: smallest to largest. Measured on the smaller set of the curve, so its end "
        "may differ a little from the final number.",
        "验证困惑度随 (a) 步数、(b) 后半程步数、(c) token 数、(d) 训练时间的变化。曲线为已完成种子的均值，色带为最小值"
        "到最大值。曲线在较小的验证集上测得，末端可能与最终数值略有不同。",
    ),
    "caption.training_loss": (
        "Training loss against (a) steps, (b) tokens and (c) training time. Lines: mean over finished seeds; bands: "
        "smallest to largest.",
        "训练损失随 (a) 步数、(b) token 数、(c) 训练时间的变化。曲线为已完成种子的均值，色带为最小值到最大值。",
    ),
    "caption.learning_rate": ("Learning rate against steps.", "学习率随训练步数的变化。"),
    "caption.parameter_distribution": (
        "Parameters (a) by role, hatched where frozen, and (b) by layer: the number of trainable parameters in each "
        "layer, shaded by the share that is frozen.",
        "参数分布：(a) 按用途，斜线为冻结部分；(b) 按层，数字为该层可训练参数量，底色深浅表示冻结比例。",
    ),
    "caption.perplexity_by_parameters": (
        "Final validation perplexity against trainable parameters; bars: 95 % interval of the mean over seeds. Arms "
        "with equal counts are drawn side by side.",
        "最终验证困惑度与可训练参数量；误差线为种子间均值的 95 % 区间。参数量相同的实验组并排绘制。",
    ),
    "caption.speed": (
        "Time per step as a ratio to {baseline}, from interleaved measurement on one device, with 95 % intervals. "
        "Left of 1 is faster.",
        "每步用时与 {baseline} 之比，在同一设备上交错测量，附 95 % 区间。小于 1 表示更快。",
    ),
    "caption.target": (
        "What it took to reach a validation perplexity of {target}: mean over the seeds that reached it.",
        "达到验证困惑度 {target} 的代价：取达到该值的种子的均值。",
    ),
    "caption.tuning": (
        "Loss on the tuning split against the grid. Rings: the value chosen for each arm. Crosses at the top: "
        "diverged.",
        "调优集损失与网格取值。圆圈为各实验组选定的取值；顶端的叉号表示发散。",
    ),
    "caption.tuning_many": (
        " With more than one key, each point shows the best over the other keys.",
        "网格含多个参数时，每点取其余参数上的最小值。",
    ),
    "caption.differences": (
        "Paired differences, treatment minus control, with 95 % intervals; small marks: single seeds. Dashed: the "
        "margin; shaded: where the claim would hold. Left of 0 is better.",
        "配对差异（处理组减对照组）及 95 % 区间；小标记为单个种子。虚线为界值，阴影为假设成立的区域。小于 0 表示更好。",
    ),
    "caption.decomposition": (
        "Where the difference comes from, in perplexity, with 95 % intervals.",
        "性能差距分解（困惑度变化）及 95 % 区间。",
    ),
    "caption.memory": (
        "(a) Weights, gradients and optimizer moments as counted; (b) the largest memory of a run as measured.",
        "(a) 按参数计算的权重、梯度与优化器状态；(b) 实测的运行内存峰值。",
    ),
}

# ---- Sections in words ---------------------------------------------------------------------------------------------

_SECTIONS: dict[str, Phrase] = {
    "parameters.table": (
        "The arms: how their queries and keys start, and whether they move.",
        "各实验组：Q/K 的初始化方式及是否更新。",
    ),
    "arm.both": ("Q, K: {text}", "Q、K：{text}"),
    "arm.each": ("Q: {query}; K: {key}", "Q：{query}；K：{key}"),
    "start.normal": ("normal, std 0.02", "随机正态，标准差 0.02"),
    "start.scaled_normal": ("normal at the scale of an orthogonal start", "随机正态，与正交初始化同尺度"),
    "start.xavier": ("Xavier", "Xavier"),
    "start.orthogonal": ("orthogonal over the whole matrix", "全局正交"),
    "start.head_orthogonal": ("orthogonal per head", "分头正交"),
    "start.residual_normal": ("normal, scaled by depth", "随机正态，按深度缩放"),
    "start.gain": (" × {gain}", "，增益 {gain}"),
    "moves.always": (", trained", "，可训练"),
    "moves.never": (", frozen", "，冻结"),
    "moves.every": (", moves every {steps} steps", "，每 {steps} 步更新一次"),
    "moves.after": (", frozen until {percent} of training", "，训练至 {percent} 后解冻"),
    "moves.after_layer_by_layer": (
        ", frozen until {percent} of training, then thawed layer by layer",
        "，训练至 {percent} 后逐层解冻",
    ),
    "moves.before": (", trained until {percent} of training, then frozen", "，训练至 {percent} 后冻结"),
    "moves.share_heads": (" (the first {percent} of the heads)", "（前 {percent} 的头）"),
    "moves.share_layers": (" (the first {percent} of the layers)", "（前 {percent} 的层）"),
    "speed.no_bench": (
        "There is no bench, so this report makes no statement about speed. The times of the runs are not a comparison: "
        "they were taken at other times, on possibly other and otherwise busy machines. Measure with: "
        "oelm bench {study}",
        "没有基准测量，因此本报告不对速度下结论。各运行的用时不能互相比较：它们在不同时间、可能不同且繁忙程度不同的机器上"
        "测得。请运行：oelm bench {study}",
    ),
    "speed.bench": (
        "Measured apart from the runs: steps of the arms interleaved on one device, {rounds} rounds.",
        "与训练分开测量：在同一设备上交错执行各组的训练步，共 {rounds} 轮。",
    ),
    "speed.table": (
        "Steps per hour in the runs (indicative), and the ratio from the bench.",
        "各运行的步/小时（仅供参考）及基准测得的用时比。",
    ),
    "speed.table_no_bench": ("Steps per hour in the runs: indicative only.", "各运行的步/小时，仅供参考。"),
    "target.sentence": (
        "The target is {percent} above the final perplexity of {baseline}: {target}.",
        "目标为 {baseline} 最终困惑度之上 {percent}：{target}。",
    ),
    "target.none": (
        "No target yet: {baseline} has no finished run.",
        "尚无目标值：{baseline} 没有已完成的运行。",
    ),
    "target.table": (
        "Steps, tokens, training time and arithmetic to the target.",
        "达到目标所需的步数、token 数、训练时间与计算量。",
    ),
    "tuning.none": (
        "Nothing was tuned in this study.",
        "本实验未做调优。",
    ),
    "tuning.open": (
        "Tuning is not over; the losses so far stand in runs.csv.",
        "调优尚未结束；目前的损失见 runs.csv。",
    ),
    "tuning.extended": (
        "The grid was extended beyond the declared points: {key} = {values}.",
        "网格已在声明的取值之外扩展：{key} = {values}。",
    ),
    "decomposition.none": (
        "The arms of this study do not include the pairs of the ablation.",
        "本实验的实验组不包含消融分析所需的配对。",
    ),
    "decomposition.table": ("The ablation, step by step.", "消融分解。"),
    "step.baseline_to_frozen": ("freezing, orthogonal per head", "冻结 Q/K + 分头正交初始化"),
    "step.baseline_to_random": ("freezing, random start", "冻结 Q/K + 随机初始化"),
    "step.baseline_to_scaled_random": ("freezing, random start at the same scale", "冻结 Q/K + 同尺度随机初始化"),
    "step.random_to_orthogonal": ("orthogonal instead of random", "正交初始化相对随机初始化"),
    "step.scaled_random_to_orthogonal": (
        "orthogonal instead of random at the same scale",
        "正交初始化相对同尺度随机初始化",
    ),
    "differences.none": (
        "No two arms share a finished seed yet.",
        "目前没有任何两组共享已完成的种子。",
    ),
    "memory.table": (
        "Memory: counted for weights, gradients and optimizer moments; measured as the largest over the runs.",
        "内存：权重、梯度与优化器状态按参数计算；峰值为各运行实测最大值。",
    ),
    "curves.none": (
        "No finished run with stored metrics is there yet.",
        "目前没有存有训练指标的已完成运行。",
    ),
    "confounds.none": (
        "Between the arms of each hypothesis nothing differs but the declared treatment.",
        "各假设的两组之间，除声明的处理外没有其他差异。",
    ),
    "confounds.no_hypothesis": (
        "The study states no hypothesis, so no pair of arms was examined.",
        "本实验未声明假设，因此没有检查任何一对实验组。",
    ),
    "confounds.table": (
        "Everything besides the declared treatment that differs between the arms of a hypothesis.",
        "各假设的两组之间，除声明的处理外的全部差异。",
    ),
    "confounds.unexplained": ("not explained", "未解释"),
    "confounds.seeds": ("no confound: only common seeds are compared", "不构成混杂：只比较共同的种子"),
    "confounds.one": ("{key}: {treatment} against {control}", "{key}：{treatment} 对 {control}"),
    "unfinished.none": ("Every planned run has a result.", "所有计划的运行均有结果。"),
    "unfinished.table": (
        "Planned runs without a result. A diverged run is a result of its own and is not started again.",
        "没有结果的计划运行。发散本身也是结果，不会重新启动。",
    ),
    "unfinished.step": ("at step {step}", "停在第 {step} 步"),
    "unfinished.more": ("And {count} more rows: see runs.csv.", "另有 {count} 行，见 runs.csv。"),
    "unfinished.waiting": ("waits for the tuning", "等待调优"),
    "cite.sentence": (
        "If this study helps your research, please cite it and the software.",
        "如果本实验对您的研究有帮助，请引用本实验及所用软件。",
    ),
    "files.sentence": (
        "Beside this report: comparison_table (text, CSV, Markdown), hypothesis_validation.txt, runs.csv with every "
        "run, analysis_results.json with every number, and the figures as PNG and SVG.",
        "随报告提供：comparison_table（文本、CSV、Markdown）、hypothesis_validation.txt、包含全部运行的 runs.csv、"
        "包含全部数值的 analysis_results.json，以及 PNG 与 SVG 格式的图。",
    ),
}

# ---- The documents' table of scenarios ------------------------------------------------------------------------------

_SCENARIOS: dict[str, Phrase] = {
    "conclusions.table": ("The hypotheses and what the runs say.", "假设与实验结论。"),
    "next.title": ("Next steps", "后续行动"),
    "scenario.better": (
        "Frozen beats trained here: the idea of the extreme learning machine holds at this size. Promote it to larger "
        "models.",
        "冻结优于不冻结：ELM 理论在该规模上得到验证。建议推广到更大模型。",
    ),
    "scenario.equal": (
        "Frozen stays within the declared margin of trained, which the documents' table calls about equal (the table "
        "above shows whether it is worse at all). The idea has some effect: optimise it.",
        "冻结组与可训练组的差异在预先声明的界值之内，即文档所说的“大致相当”（是否存在差距见上表）。"
        "ELM 有一定效果：建议优化实现。",
    ),
    "scenario.worse": (
        "Frozen is worse than trained: rethink, and find out why.",
        "冻结差于不冻结：需要重新思考，分析原因。",
    ),
    "scenario.unknown": (
        "The runs do not decide yet whether frozen is better, about equal or worse.",
        "目前的运行尚不足以判断冻结是更好、相当还是更差。",
    ),
    "next.better.larger": (
        "Repeat at two larger sizes and on OpenWebText and WikiText-103: small studies can mislead.",
        "在两个更大的规模以及 OpenWebText、WikiText-103 上重复：小规模实验可能误导。",
    ),
    "next.better.rival": (
        "Compare with the rival that saves more: trained queries and keys of small width (4 or 8 per head).",
        "与更省参数的对手比较：可训练但每头宽度很小（4 或 8）的 Q/K。",
    ),
    "next.better.why": (
        "Ask why it helps: tune both arms' weight decay and warm-up on one grid, to exclude that freezing only "
        "regularises.",
        "追问原因：在同一网格上对两组的权重衰减与 warmup 调优，排除冻结只是起到正则化作用。",
    ),
    "next.equal.cost": (
        "Turn equality into a gain: skip gradients and moments of the frozen weights, measure with oelm bench, use the "
        "memory saved for a larger batch.",
        "把“相当”变成收益：跳过冻结权重的梯度与优化器状态，用 oelm bench 测量，并用省下的显存增大批量。",
    ),
    "next.equal.share": (
        "Find how much can be frozen at no loss: also value or output projections, by a share of the heads or layers.",
        "寻找无损冻结的上限：按头或按层的比例，进一步冻结 V 或 O 投影。",
    ),
    "next.equal.seeds": (
        "Add seeds until the interval lies well inside the margin, then go to a larger size.",
        "增加随机种子，直到区间明显落在界值之内，再转向更大规模。",
    ),
    "next.worse.gain": (
        "Repair the sharpness first: a gain of 1.4 to 2 on the frozen matrices, or one trained temperature per head "
        "(48 numbers at Medium-512).",
        "先修复注意力的锐度：对冻结矩阵乘以 1.4–2 的增益，或为每个头训练一个温度（Medium-512 共 48 个参数）。",
    ),
    "next.worse.share": (
        "Freeze in part: freeze_ratio 0.25 and 0.5 of the heads or layers, or queries only (arms frozen_quarter, "
        "frozen_half).",
        "部分冻结：对 25 % 和 50 % 的头或层冻结（freeze_ratio 0.25、0.5），或只冻结 Q（实验组 frozen_quarter、"
        "frozen_half）。",
    ),
    "next.worse.schedule": (
        "Freeze for a time: every N steps, late or layer-by-layer unfreezing, or train first and then freeze (arms "
        "every_n, late_unfreeze, progressive_unfreeze, train_then_freeze).",
        "按时间表冻结：每 N 步更新一次、训练后期解冻、逐层解冻，或先训练后冻结（实验组 every_n、late_unfreeze、"
        "progressive_unfreeze、train_then_freeze）。",
    ),
    "next.worse.position": (
        "Give frozen keys what they lack: relative position per head, a key shift or short convolution started at "
        "identity, or a low-rank residual (r = 4, 8). Give every repair to the trained baseline too.",
        "弥补冻结的 K 所缺：每头相对位置、从恒等开始的 key shift 或短卷积，或低秩残差（r = 4、8）。每项修复都应同样"
        "加到可训练基线上。",
    ),
    "next.worse.scale": (
        "Separate start from scale: compare with the scale-matched normal start, frozen and trained.",
        "区分初始化方式与尺度：与同尺度的随机正态初始化（冻结与可训练）比较。",
    ),
    "next.unknown.finish": (
        "Finish what is missing with: oelm run {study}",
        "补齐缺少的运行：oelm run {study}",
    ),
    "next.unknown.seeds": (
        "Then add seeds: where so many would probably decide it, the undecided box above says how many.",
        "然后增加随机种子：若增加种子可能得出结论，上面“尚无定论”的假设给出了大约需要的数量。",
    ),
    "next.unknown.more_seeds": (
        "Plan at least 8 paired seeds: with {seeds}, only large differences can be told from chance.",
        "计划至少 8 个配对随机种子：只有 {seeds} 个时，只能分辨较大的差异。",
    ),
    "next.any.confounds": (
        "Remove or explain the confounds listed below before anything is concluded from: {names}.",
        "在对 {names} 下结论之前，先消除或解释下文列出的混杂因素。",
    ),
    "next.any.tune": (
        "Tune the learning rate per arm on one grid before drawing conclusions from small differences.",
        "在对微小差异下结论之前，先让各实验组在同一网格上调优学习率。",
    ),
    "next.any.edge": (
        "Extend the grid where an optimum lies at its edge: {arms}.",
        "在最优值位于网格边缘处扩展网格：{arms}。",
    ),
    "next.any.diverged": (
        "Look at the diverged runs of {arms}: a lower rate or a longer warm-up may be needed, for all arms alike.",
        "检查 {arms} 的发散运行：可能需要更低的学习率或更长的 warmup，且对所有组一视同仁。",
    ),
}

# ---- Provenance and remarks ----------------------------------------------------------------------------------------

_PROVENANCE: dict[str, Phrase] = {
    "note.fixed_learning_rate": (
        "Nothing was tuned: every arm uses the one learning rate {learning_rate}. An arm that prefers another rate is "
        "at a disadvantage that this study cannot see.",
        "学习率未调优：所有实验组使用同一学习率 {learning_rate}。若某组更适合其他学习率，本实验无法反映这一劣势。",
    ),
    "note.edge_optimum": (
        "{arm}: the best {key} ({value}) lies at the edge of the grid, also after any extension; the true optimum may "
        "be beyond it.",
        "{arm}：最优的 {key}（{value}）位于网格边缘（扩展后仍然如此），真正的最优值可能在网格之外。",
    ),
    "note.all_points_diverged": (
        "{arm}: every point of the grid diverged; it has no final runs.",
        "{arm}：网格上所有取值均发散，没有最终运行。",
    ),
    "note.few_seeds": (
        "Planned seeds: {seeds}, too few for any p-value, so no claim about quality can be settled.",
        "本实验只计划 {seeds} 个随机种子：不足以给出 p 值，因此无法对质量假设下结论。",
    ),
    "note.mixed_environment": (
        "Not the same in all finished runs: {key} = {values}.",
        "各已完成运行之间不一致：{key} = {values}。",
    ),
    "note.not_recorded": (
        "Finished runs that do not say where they were computed: {runs}.",
        "{runs} 次已完成的运行没有记录运行环境。",
    ),
    "note.uncommitted_sources": (
        "Runs made from sources with changes that were not committed: {runs}.",
        "{runs} 次运行所用的源代码含有未提交的修改。",
    ),
    "note.bench_of_other_sources": (
        "The bench measured other sources ({bench}) than the runs used ({runs}).",
        "基准测量所用的源代码（{bench}）与运行所用的（{runs}）不同。",
    ),
    "note.unreadable": ("Not readable: {line}", "无法读取：{line}"),
    "provenance.study_digest": ("study digest (SHA-256)", "实验声明摘要 (SHA-256)"),
    "provenance.runs": ("stored runs", "已存运行"),
    "provenance.runs_value": ("{runs} (final {final}, tuning {tuning})", "{runs}（最终 {final}，调优 {tuning}）"),
    "provenance.commits": ("commits", "代码提交"),
    "provenance.commit_value": ("{commit} (runs: {runs})", "{commit}（{runs} 次运行）"),
    "provenance.dirty_commit_value": (
        "{commit} with uncommitted changes (runs: {runs})",
        "{commit}，含未提交修改（{runs} 次运行）",
    ),
    "provenance.source_digests": ("computing sources (SHA-256)", "计算源代码摘要 (SHA-256)"),
    "provenance.data_digests": ("data (SHA-256)", "数据摘要 (SHA-256)"),
    "provenance.devices": ("devices", "设备"),
    "provenance.processors": ("processors", "处理器"),
    "provenance.precisions": ("precision", "数值精度"),
    "provenance.threads": ("threads", "线程数"),
    "provenance.platforms": ("systems", "操作系统"),
    "provenance.pythons": ("Python", "Python"),
    "provenance.versions": ("libraries", "软件版本"),
    "provenance.compute": ("compute used", "计算时间"),
    "provenance.compute_value": (
        "{total} (final runs {final}, tuning {tuning})",
        "{total}（最终运行 {final}，调优 {tuning}）",
    ),
    "provenance.model": ("model", "模型配置"),
    "provenance.training": ("training", "训练配置"),
    "provenance.unknown": ("not recorded", "未记录"),
}

WORDS: dict[str, Phrase] = {
    **_FRAME, **_COMPLETENESS, **_VERDICTS, **_REASONS, **_TABLE, **_FIGURES, **_SECTIONS, **_SCENARIOS, **_PROVENANCE,
    **CLASSIFICATION_WORDS,
}  # fmt: skip


def say(language: Language, code: str, **facts: object) -> str:
    """The phrase of a code. Facts are inserted as they are, braces in them included."""
    phrase = WORDS[code][("en", "zh").index(language)]
    return phrase.format(**facts)


def in_points(language: Language, number: str) -> str:
    """A number, signed or not, of percentage points."""
    return say(language, "unit.point" if number == "1" else "unit.points", number=number)


def code_for(code: str, *, classifies: bool) -> str:
    """The same thing in the words of a study that classifies, where it has its own."""
    own = f"{code}.classification"
    return own if classifies and own in WORDS else code


def say_or_code(language: Language, code: str, facts: Mapping[str, object]) -> str:
    """For codes another version of the analysis may have added: better a code with its numbers than no report."""
    try:
        return say(language, code, **facts)
    except (KeyError, IndexError):
        name = code.partition(".")[2].replace("_", " ")
        return f"{name}: " + ", ".join(f"{key} {value}" for key, value in facts.items()) if facts else name


def characters(language: Language) -> str:
    """Every character the phrases of a language use: what a font must have."""
    return "".join(
        sorted({character for phrase in WORDS.values() for character in phrase[("en", "zh").index(language)]})
    )
