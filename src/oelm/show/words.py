"""Every sentence and label of a report, in both languages, by code. Formatted numbers come in as facts.

What is said of any measure names it as `{quality}`, which is `{better}` or `{worse}` than another; a measure may have
words of its own in place of these, and a code that ends in the key of its scale is for the measures on that scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from oelm.core.arm_words import WHEN
from oelm.core.measures import MEASURES, Phrase
from oelm.core.options import ADDITIONS, OPTIONS, POSITIONS
from oelm.core.parts import ALL_ROLES
from oelm.core.starts import STARTS
from oelm.models.heads.kinds import KINDS as HEAD_KINDS
from oelm.show.encoder_words import ENCODER_WORDS, MORE_WORDS
from oelm.show.look_words import LOOK_WORDS
from oelm.show.scale_words import SCALE_WORDS
from oelm.study.claims.kinds import KINDS
from oelm.study.claims.reasons import REASONS
from oelm.study.claims.reservations import RESERVATIONS
from oelm.study.declaration import Language, Study
from oelm.study.remarks import NOW, SENTENCES

LANGUAGES: tuple[Language, ...] = ("en", "zh")  # as every phrase has them

# ---- The frame -----------------------------------------------------------------------------------------------------

_FRAME: dict[str, Phrase] = {
    "kicker": ("Study report", "对比实验报告"),
    "contents": ("Contents", "目录"),
    "list_comma": (", ", "、"),
    "list_semicolon": ("; ", "；"),
    "heading.verdicts": ("Verdicts", "假设验证"),
    "heading.table": ("Results", "实验结果"),
    "heading.probe": ("Probe", "探测任务"),
    "heading.curves": ("Learning curves", "训练曲线"),
    "heading.heads": ("Attention heads", "注意力头"),
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
    "partial.others_only": (
        "None of the {planned} final runs that the study plans now has run. Start them with: oelm run {study}",
        "本实验现在计划的 {planned} 次最终运行均未运行。启动命令：oelm run {study}",
    ),
    "caution.title": ("Before you rely on these verdicts", "采信结论之前须知"),
    "caution.standing": ("Registration: {registration}", "登记：{registration}"),
    "caution.registration": (
        "The declaration was changed after it was registered ({registered}): {changes}",
        "声明在登记（{registered}）之后被修改：{changes}",
    ),
    "partial.final": (
        "Final runs finished: {finished} of {planned}.",
        "计划的 {planned} 次最终运行中已完成 {finished} 次。",
    ),
    "partial.tuning": (
        "Tuning is not finished: {finished} of {planned} tuning runs have finished. "
        "Final runs start when every arm has its value.",
        "调优尚未结束：{planned} 次调优运行中已完成 {finished} 次。各实验组的取值确定后才开始最终运行。",
    ),
    "partial.arm": ("{arm}: no result for seed {seeds} ({state})", "{arm}：随机种子 {seeds} 没有结果（{state}）"),
    "partial.arm.seeds": (
        "{arm}: no result for seeds {seeds} ({state})",
        "{arm}：随机种子 {seeds} 没有结果（{state}）",
    ),
    "partial.numbers": (
        "Every number below comes from the finished runs alone. A verdict whose runs are missing is undecided.",
        "以下数值只来自已完成的运行；缺少运行的假设一律判为“尚无定论”。",
    ),
    "state.missing": ("not started", "未启动"),
    "state.waiting": ("waiting for a look", "等待检视"),
    "state.not_needed": ("not needed", "不再需要"),
    "state.queued": ("waiting", "排队中"),
    "state.running": ("running", "运行中"),
    "state.interrupted": ("interrupted", "已中断"),
    "state.damaged": ("damaged", "已损坏"),
    "state.finished": ("finished", "已完成"),
    "state.failed": ("failed", "失败"),
    "state.unmeasured": ("finished without the number that is compared", "已完成，但缺少用于比较的数值"),
    "state.diverged": ("diverged", "发散"),
    "stage.final": ("final", "最终"),
    "stage.tuning": ("tuning", "调优"),
}

# ---- Verdicts ------------------------------------------------------------------------------------------------------

_VERDICTS: dict[str, Phrase] = {
    "outcome.supported": ("supported", "成立"),
    "outcome.refuted": ("refuted", "不成立"),
    "outcome.undecided": ("undecided", "尚无定论"),
    "outcome.confounded": ("confounded", "存在混杂"),
    "verdicts.none": (
        "The study states no hypothesis, so the numbers below are a description, not a test.",
        "本实验未声明任何假设，以下数值仅为描述，不构成检验。",
    ),
    "verdicts.summary": (
        "Hypotheses: {outcomes}. Each verdict is about the model size, the training and the data named with its claim; "
        "a larger model or longer training may give another one.",
        "假设检验结果：{outcomes}。每个结论只针对假设后注明的模型规模、训练量和数据；模型更大或训练更久时，结论可能不"
        "同。",
    ),
    "verdicts.outcome_count": ("{count} {outcome}", "{outcome} {count} 个"),
    "verdicts.method.paired_t": (
        "Differences are treatment minus control in {quality}, in {unit}, paired over seeds; {better} zero the "
        "treatment is better. A claim is supported when its one-sided paired t test, Holm-adjusted over the "
        "confirmatory hypotheses of its family (here {family}), reaches p <= 0.05; it is refuted when the one-sided "
        "95 % bound, which is not adjusted, lies beyond it. The interval beside an effect is two-sided, 95 %; the p is "
        "the one that decides, and the others stand in analysis_results.json. Fewer than three pairs give no p-value.",
        "差异为处理组减对照组的{quality}（{unit}），按随机种子配对；{side}零表示处理组更好。单侧配对 t 检验的 p 值在"
        "同族的 {family} 个验证性假设上作 Holm 校正后不超过 0.05 时判为成立；未经校正的单侧 95 % 界落在另一侧时"
        "判为不成立。效应旁的区间为双侧 95 % 区间；只列出起决定作用的 p 值，其余见 analysis_results.json。不足三对时"
        "不给出 p 值。",
    ),
    "verdicts.method.without_spread": (
        " Where all pairs differ by exactly the same amount, the exact sign-flip test decides in place of the t test: "
        "n such pairs reach p = 1 / 2^n.",
        "若各对差异完全相同，则由精确符号翻转检验代替 t 检验判定：n 对这样的结果可达到 p = 1 / 2^n。",
    ),
    "verdicts.method.solving": (
        "Claims about solved seeds and steps to solve are decided by an exact one-sided sign test over the informative "
        "pairs: those in which only one arm solves the probe, or in which the validations tell which solved it first. "
        "A run is solved by the accuracy at its end; its steps are those to the first validation that reached it, so "
        "they are known to within the validation interval; a run that does not solve it, or diverged, comes after all "
        "that do. Pairs that are tied or in which neither solves it are left out and counted. The p-values belong to "
        "one family with those of the claims about {quality} (here {family} in all) and are Holm-adjusted together; a "
        "claim is refuted when the same test shows the opposite at p <= 0.05, not adjusted. Fewer than {least} "
        "informative pairs decide nothing.",
        "关于解出种子数和解出步数的假设由精确单侧符号检验判定，只计提供信息的配对：仅一组解出任务，或验证记录能分出先后。"
        "是否解出以结束时的准确率为准；步数为首次达到该准确率的验证步，因此只精确到验证间隔；未解出或发散的运行"
        "视为晚于所有解出的运行。"
        "相同或都未解出的配对不计入检验，但列出数量。其 p 值与关于{quality}的假设属于同一族"
        "（共 {family} 个），一并作 Holm 校正；同一检验在相反方向 p <= 0.05（未校正）时判为不成立。"
        "提供信息的配对不足 {least} 对时无法判定。",
    ),
    "scope.line": ("{parameters} parameters, {read} a run, {data}", "{parameters} 参数，每次运行 {read}，{data}"),
    "scope.tokens": ("{count} tokens", "{count} 个 token"),
    "scope.examples": ("{count} examples", "{count} 个样本"),
    "scope.span": ("{least} to {most}", "{least} 至 {most}"),
    "scope.stated": ("{line}; {stated}", "{line}；{stated}"),
    "box.scope": ("({scope})", "（{scope}）"),
    "box.criterion": ("passes when", "通过标准"),
    "box.fails_when": ("fails when", "判为不成立的条件"),
    "box.difference": ("difference", "差异"),
    "box.contrast": ("change of the difference", "差异的变化"),
    "box.shown_difference": ("in {quality}", "{quality}变化"),
    "box.margin": ("margin", "界值"),
    "box.margin_value": ("{percent} ({nats} nats)", "{percent}（{nats} nats）"),
    "box.seeds": ("paired seeds", "配对种子数"),
    "box.seeds_value": ("{done} of {planned}", "{done}／{planned}"),
    "box.pairs": ("pairs", "配对"),
    "box.pairs.solved_seeds": (
        "only the treatment solves it {ahead}, only the control {behind}, both {tied}, neither {neither}",
        "仅处理组解出 {ahead}，仅对照组解出 {behind}，都解出 {tied}，都未解出 {neither}",
    ),
    "box.pairs.steps_to_solve": (
        "treatment sooner {ahead}, control sooner {behind}, tied {tied}, neither solves it {neither}",
        "处理组先解出 {ahead}，对照组先解出 {behind}，同时 {tied}，都未解出 {neither}",
    ),
    "quality.at_difficulty": ("{quality} at difficulty {difficulty}", "难度 {difficulty} 的{quality}"),
    "solved.mean": ("accuracy of at least {level}", "准确率不低于 {level}"),
    "solved.at_difficulty": (
        "accuracy of at least {level} at difficulty {difficulty}",
        "难度 {difficulty} 的准确率不低于 {level}",
    ),
    "box.ratio": ("time per step, ratio", "每步用时之比"),
    "box.ratio_value": ("{ratio} {interval}, {blocks} blocks", "{ratio} {interval}，{blocks} 个区组"),
    "box.parameters": ("trainable parameters", "可训练参数"),
    "box.frozen": ("frozen parameters", "冻结参数"),
    "box.implied": ("implied entries, not stored", "隐含的矩阵元素（不存储）"),
    "box.against": ("{treatment} against {control} ({percent})", "{treatment} 对 {control}（{percent}）"),
    "outcome.reserved": ("{outcome} ({reservations})", "{outcome}（{reservations}）"),
    "box.regardless": (
        "Leaving the confounds aside, the runs would say: {outcome}.",
        "若不考虑混杂因素，结果为：{outcome}。",
    ),
    "box.confound": ("Confound: {confound}", "混杂因素：{confound}"),
    # What a verdict on tested pairs says: the effect, where it lies to the bound (see claims.kinds), and one p-value.
    "effect.difference.cost": (
        "{treatment} costs {amount} of {quality} against {control}{interval}",
        "与“{control}”相比，“{treatment}”的{quality}代价为 {amount}{interval}",
    ),
    "effect.difference.gain": (
        "{treatment} is better than {control} by {amount} of {quality}{interval}",
        "与“{control}”相比，“{treatment}”的{quality}改善 {amount}{interval}",
    ),
    "effect.contrast.cost": (
        "From {against} to {size}, what {treatment} costs against {control} in {quality} grows by {amount}{interval}",
        "从 {against} 到 {size}，“{treatment}”相对“{control}”的{quality}代价增加 {amount}{interval}",
    ),
    "effect.contrast.gain": (
        "From {against} to {size}, what {treatment} costs against {control} in {quality} shrinks by {amount}{interval}",
        "从 {against} 到 {size}，“{treatment}”相对“{control}”的{quality}代价减少 {amount}{interval}",
    ),
    "effect.slope.cost": (
        "With every doubling of {per}, what {treatment} costs against {control} in {quality} grows by "
        "{amount}{interval}",
        "{per}每翻一倍，“{treatment}”相对“{control}”的{quality}代价增加 {amount}{interval}",
    ),
    "effect.slope.gain": (
        "With every doubling of {per}, what {treatment} costs against {control} in {quality} shrinks by "
        "{amount}{interval}",
        "{per}每翻一倍，“{treatment}”相对“{control}”的{quality}代价减少 {amount}{interval}",
    ),
    "effect.interval": (" ({low} to {high})", "（{low} 至 {high}）"),
    "doubt.few.pairs": ("which {pairs} pairs are too few to decide", "{pairs} 对太少，无法判定"),
    "doubt.few.sizes": ("which {sizes} sizes are too few to decide", "{sizes} 个规模太少，无法判定"),
    "doubt.few.signs": ("which are too few to decide", "数目太少，无法判定"),
    "doubt.near.signs": ("too near one half to decide", "与各半过于接近，无法判定"),
    "p.over_claims": ("p {p} over {claims} claims", "p {p}（计入 {claims} 个假设）"),
    "p.alone": ("p {p}", "p {p}"),
    "p.against": ("p {p} against it, of this claim alone", "与之相反的 p {p}（仅计此假设）"),
    # After the p-value: what was done about the rates of the arms.
    "p.and_rates": ("{p}, {rates}", "{p}，{rates}"),
    "rates.allowed": ("with a rate allowance of {allowance}", "含学习率余量 {allowance}"),
    "rates.one_rate": ("at one rate", "只在一个学习率下"),
    "rates.fixed_rates": ("at fixed rates", "学习率固定，未经调优"),
    "rates.carried_rates": ("at carried rates", "学习率为推得"),
    "rates.one_seed": ("rates chosen from one seed", "学习率由一个种子选定"),
    "rates.few_seeds": ("rates chosen from {seeds} seeds", "学习率由 {seeds} 个种子选定"),
    "rates.in_spread": (
        "what the rates chosen at each size are off by counts in the spread of the sizes",
        "各规模所选学习率的偏差计入规模间的离散",
    ),
    "rates.other_measure": (
        "rates chosen from {seeds} seeds, without an allowance",
        "学习率由 {seeds} 个种子选定，不含余量",
    ),
    "rates.several_settings": (
        "chosen on a grid of several settings, without a rate allowance",
        "在多个设置的网格上选定，不含学习率余量",
    ),
    "rates.few_values": (
        "without a rate allowance: too few rates were tried for {arms}",
        "不含学习率余量：{arms} 所试学习率过少",
    ),
    "rates.look_without": (
        "without a rate allowance, as its look was taken by an older version",
        "不含学习率余量（检视由旧版本作出）",
    ),
    "verdicts.method.rates": (
        " The rate allowance is how far the loss at the chosen rates may lie above the arms' best, at 95 %, from the "
        "tuning runs; the bound of a claim is moved by it.",
        "学习率余量为所选学习率的损失可能高出该组最优值的幅度（95 %，由调优运行得出），假设的界按它移动。",
    ),
    "box.rates": ("rate allowance", "学习率余量"),
    "interval_of": ("{middle} (95 % interval {interval})", "{middle}（95 % 区间 {interval}）"),
}

_CLAIMS: dict[str, Phrase] = {
    **{f"reservation.{key}": each.sentence for key, each in RESERVATIONS.items()},
    **{f"reservation.{key}.short": each.short for key, each in RESERVATIONS.items()},
    **{f"criterion.{key}": kind.criterion for key, kind in KINDS.items()},
    **{f"criterion.{key}.of_fewer": kind.of_fewer.criterion for key, kind in KINDS.items() if kind.of_fewer},
    **{
        f"criterion.{key}.with_margin": kind.criterion_with_margin
        for key, kind in KINDS.items()
        if kind.criterion_with_margin
    },
    **{f"reason.{code}": reason.sentence for code, reason in REASONS.items()},
    "seeds_by_state": ("{state} (seeds: {seeds})", "{state}（种子：{seeds}）"),
    "nothing_missing": ("complete", "完整"),
    "nobody": ("none", "无"),
}

# ---- The table -----------------------------------------------------------------------------------------------------

_TABLE: dict[str, Phrase] = {
    "column.solved": ("solved", "解出"),
    "column.steps_to_solve": ("steps to solve, median of the solved", "解出步数中位数（仅计解出者）"),
    "column.steps_range": ("from – to", "范围"),
    "column.validated_every": ("validated every", "验证间隔"),
    "column.point": ("values", "取值"),
    "column.tuning_solved": ("seeds that solve it", "解出的种子"),
    "column.tuning_steps": ("mean steps", "平均步数"),
    "column.tuning_loss": ("loss", "损失"),
    "column.round": ("round", "轮次"),
    "column.round_steps": ("steps", "步数"),
    "column.went_on": ("continued", "进入下一轮"),
    "column.dropped": ("dropped (nats behind the best)", "淘汰（落后最优值的 nats）"),
    "column.best_tried": ("best value tried", "试过的最优值"),
    "column.optimum": ("fitted optimum", "拟合最优值"),
    "solving.tuning_table": (
        "The grid by solving ({scope}): the share of the tuning seeds that solve the probe, their mean steps and their "
        "mean loss on the tuning split; * marks what was chosen.",
        "按解出情况列出的网格（{scope}）：解出任务的调优种子比例、平均步数和调优集上的平均损失；* 为选定的取值。",
    ),
    "floor.sentence": (" Floor: {floor}.", "下限：{floor}。"),
    "floor.one": ("{value} ({nothing})", "{value}（{nothing}）"),
    "floor.two": ("{value} ({nothing}), {more} ({little})", "{value}（{nothing}）、{more}（{little}）"),
    "floor.unknown": ("unknown", "未知"),
    "box.floor": ("floor", "下限"),
    "box.at_floor": (
        "{arm} is not clearly {better} the floor: it may have learnt nothing.",
        "“{arm}”并不明显{better}于下限：可能没有学到任何内容。",
    ),
    "probe.chances": (
        "The task is {task} ({source}). A blind guess among all tokens is right in {blind} of the answers; a guess "
        "among what the context offers, by {dial}: {in_context}.",
        "任务：{task}（{source}）。在全部 token 中盲猜的准确率为 {blind}；在上下文给出的候选中猜测，"
        "按{dial}为：{in_context}。",
    ),
    "probe.chance": (
        "The task is {task} ({source}). A blind guess among all tokens is right in {blind} of the answers; the context "
        "offers none.",
        "任务：{task}（{source}）。在全部 token 中盲猜的准确率为 {blind}；上下文不提供答案。",
    ),
    "probe.blind": ("blind guess", "盲猜"),
    "probe.in_context": ("guess in context", "上下文内猜测"),
    "solving.never": ("not solved", "未解出"),
    "solving.table": (
        "Solved runs of all ({scope}), one for each seed. Solved: {solved} at the end. Steps to solve: those "
        "to the first validation that reached it, over the runs that solve it; they are known to within the validation "
        "interval.",
        "解出任务的运行数与总数（{scope}），每个种子一次。解出：结束时{solved}。"
        "解出步数：解出的运行首次达到该准确率的验证步，只精确到验证间隔。",
    ),
    "column.arm": ("arm", "实验组"),
    "column.total": ("parameters", "总参数量"),
    "column.trainable": ("trainable", "可训练参数"),
    "column.frozen": ("frozen", "冻结参数"),
    "column.implied": ("implied (not stored)", "隐含（不存储）"),
    "column.against_baseline": ("against baseline", "相对基线"),
    "column.learning_rate": ("learning rate", "学习率"),
    "column.seeds": ("seeds", "种子数"),
    "provenance.seeds": ("seeds", "随机种子"),
    "column.value": ("{quality}", "{quality}"),
    "column.loss": ("loss, nats", "损失 (nats)"),
    "column.difference": ("difference, nats", "差异 (nats)"),
    "column.shown_difference.percent": ("in {quality}", "{quality}差异"),
    "column.shown_difference.points": ("difference, points", "差异（百分点）"),
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
    "column.error": ("what happened", "说明"),
    "column.setting": ("what differs", "差异项"),
    "column.treatment": ("treatment", "处理组"),
    "column.control": ("control", "对照组"),
    "column.explained": ("explained by the study", "实验给出的解释"),
    "column.hypothesis": ("hypothesis", "假设"),
    "column.outcome": ("verdict", "结论"),
    "column.treated": ("treated parts", "处理部分"),
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
        "Quality ({scope}): mean ± standard deviation over seeds; difference in {quality} from {baseline}, in {unit}, "
        "paired over seeds, with its 95 % interval; adjusted p where a hypothesis compares the arm with {baseline}; "
        "time of a step as a ratio to {baseline}, by oelm bench.",
        "质量（{scope}）：种子间均值 ± 标准差；与“{baseline}”的{quality}差异（{unit}）按种子配对，附 95 % 区间；"
        "仅当有假设将该组与“{baseline}”比较时给出校正 p 值；每步用时与“{baseline}”之比由 oelm bench 测得。",
    ),
    "table.cost": (
        "Cost of one run ({scope}). Time per step is the mean over the runs and not a comparison of speed (see Speed).",
        "单次运行的代价（{scope}）。每步用时为各运行均值，不能用于比较速度（见“训练速度”）。",
    ),
    "table.baseline": ("baseline", "基线"),
    "draws.one": (
        "Every claim about these arms rests on draws of their treated parts: {arms}. Number of draws: {total}, one for "
        "each seed, so the variance between draws cannot be separated from that between seeds.",
        "关于下列实验组的结论基于其所处理部分的随机抽取：{arms}。共 {total} 次抽取，每个种子一次，"
        "因此抽取之间的方差与种子之间的方差无法区分。",
    ),
    "table.fixed_learning_rates": (
        "Nothing was tuned, and the arms use different learning rates: {values}.",
        "本实验未做调优，且各实验组学习率不同：{values}。",
    ),
    "table.tuned": (
        "Tuned per arm on one grid, chosen by the loss on the tuning split: {keys}.",
        "各实验组在同一网格上调优，按调优集上的损失选取：{keys}。",
    ),
    "table.tuned_by_solving": (
        "Tuned per arm on one grid, ranked on the tuning split by the share of tuning seeds that solve the probe "
        "({solved} at the end), then by the mean steps to solve it (a seed that does not counts with all its steps), "
        "then by the loss: {keys}.",
        "各实验组在同一网格上调优，在调优集上先按解出任务（结束时{solved}）的调优种子比例排序，再按平均解出步数"
        "（未解出的种子按其全部步数计），最后按损失：{keys}。",
    ),
    "table.halving": (
        " By halving: values more than {margin} nats behind the best after a short run with a complete schedule were "
        "dropped, by the same rule for every arm.",
        "采用逐轮淘汰：先以较少步数跑完整个学习率计划，落后最优值超过 {margin} nats 的取值被淘汰，各实验组规则相同。",
    ),
    "table.fitted": (
        " The learning rate of the final runs is the fitted optimum between the values tried.",
        "最终运行的学习率为所试取值之间的拟合最优值。",
    ),
    "table.other_tuned": (
        "The learning rate was not tuned; the grid covers {keys}.",
        "学习率未调优；调优网格为 {keys}。",
    ),
}

# ---- Figures: axes and captions ------------------------------------------------------------------------------------

_FIGURES: dict[str, Phrase] = {
    "axis.steps": ("training steps", "训练步数"),
    "axis.steps_to_solve": ("training steps to solve the probe", "解出探测任务所需的训练步数"),
    "axis.tokens": ("training tokens", "训练 token 数"),
    "axis.hours": ("training time (h)", "训练时间（小时）"),
    "axis.minutes": ("training time (min)", "训练时间（分钟）"),
    "axis.seconds": ("training time (s)", "训练时间（秒）"),
    "axis.flops": ("arithmetic ({unit})", "计算量（{unit}）"),
    "axis.value.percent": ("validation {quality}", "验证{quality}"),
    "axis.value.points": ("validation {quality} (%)", "验证{quality} (%)"),
    "axis.validation_loss": ("validation loss (nats per token)", "验证损失（nats / token）"),
    "axis.train_loss": ("training loss (nats per token)", "训练损失（nats / token）"),
    "axis.learning_rate": ("learning rate", "学习率"),
    "axis.strongest_head": ("largest score of any head", "所有头中的最大得分"),
    "axis.head": ("head", "头"),
    "axis.ranked_head": ("head, strongest first", "头（得分从高到低）"),
    "axis.share_of_attention": ("share of attention", "注意力比例"),
    "axis.parameters": ("parameters (millions)", "参数量（百万）"),
    "axis.trainable": ("trainable parameters (millions)", "可训练参数（百万）"),
    "axis.tuning_loss": ("loss on the tuning split (nats)", "调优集损失 (nats)"),
    "axis.difference": ("difference in the logarithm of {quality}", "{quality}的对数差异"),
    "axis.shown_difference.percent": ("difference in {quality} (%)", "{quality}差异 (%)"),
    "axis.shown_difference.points": ("difference in {quality} (percentage points)", "{quality}差异（百分点）"),
    "axis.ratio": ("time per step, ratio to {baseline}", "每步用时与“{baseline}”之比"),
    "axis.memory": ("memory (MiB)", "内存 (MiB)"),
    "axis.peak_memory": ("peak memory of the process (MiB)", "进程内存峰值 (MiB)"),
    "axis.layer": ("layer", "层"),
    "axis.embeddings": ("emb.", "嵌入"),
    "legend.frozen": ("frozen (hatched)", "冻结（斜线）"),
    "legend.implied": ("implied, not stored (dotted)", "隐含，不存储（点状）"),
    "legend.margin": ("margin", "界值"),
    "legend.passes": ("supports the claim", "假设成立的区域"),
    "legend.seed": ("one seed", "单个种子"),
    "legend.mean": ("mean, 95 % interval", "均值与 95 % 区间"),
    "legend.weights": ("weights", "权重"),
    "legend.gradients": ("gradients", "梯度"),
    "legend.optimizer": ("optimizer moments", "优化器状态"),
    "figure.not_reached": ("not reached", "未达到"),
    "figure.reached_by": ("{seeds} of {planned} seeds", "{planned} 个种子中的 {seeds} 个"),
    "panel.whole": ("whole run", "全程"),
    "panel.late": ("last half", "后半程"),
    **{f"head.{kind.name}": kind.words for kind in HEAD_KINDS.values()},
    **{f"role.{role.name}": role.words for role in ALL_ROLES.values()},
    **{f"role.{name}": option.words for name, option in ADDITIONS.items()},
    **{f"option.{key}": option.phrase for key, option in OPTIONS.items()},
    **{f"positions.{kind}": words for kind, words in POSITIONS.items()},
    "caption.final.percent": (
        "Final validation {quality}. Small marks: single seeds; large: their geometric mean, with its 95 % interval "
        "over seeds where there are two or more.",
        "最终验证{quality}。小标记为单个种子；大标记为几何平均值，有两个及以上种子时附 95 % 区间。",
    ),
    "caption.final.points": (
        "Final validation {quality}. Small marks: single seeds; large: their mean, with its 95 % interval over seeds "
        "where there are two or more.",
        "最终验证{quality}。小标记为单个种子；大标记为均值，有两个及以上种子时附 95 % 区间。",
    ),
    "caption.curve.percent": (
        "Validation {quality} against (a) steps, (b) the last half of them, (c) {read} and (d) training time. Lines: "
        "mean over finished seeds; bands: smallest to largest. Measured on the smaller set of the curve, so its end "
        "may differ a little from the final number.",
        "验证{quality}随 (a) 步数、(b) 后半程步数、(c) {read}、(d) 训练时间的变化。曲线为已完成种子的均值，色带为最小值"
        "到最大值。曲线在较小的验证集上测得，末端可能与最终数值略有不同。",
    ),
    "caption.curve.points": (
        "Validation {quality} against (a) steps, (b) {read} and (c) training time. Lines: mean over finished seeds; "
        "bands: smallest to largest. Measured on the smaller set of the curve, so its end may differ a little from the "
        "final number.",
        "验证{quality}随 (a) 步数、(b) {read}、(c) 训练时间的变化。曲线为已完成种子的均值，色带为最小值到最大值。"
        "曲线在较小的验证集上测得，末端可能与最终数值略有不同。",
    ),
    "caption.validation_loss": (
        "Validation loss against (a) steps, (b) {read} and (c) training time, on the same set.",
        "验证损失随 (a) 步数、(b) {read}、(c) 训练时间的变化，在同一验证集上测得。",
    ),
    "caption.training_loss": (
        "Training loss against (a) steps, (b) {read} and (c) training time. Lines: mean over finished seeds; bands: "
        "smallest to largest.",
        "训练损失随 (a) 步数、(b) {read}、(c) 训练时间的变化。曲线为已完成种子的均值，色带为最小值到最大值。",
    ),
    "caption.learning_rate": ("Learning rate against steps.", "学习率随训练步数的变化。"),
    "caption.by_difficulty": (
        "Final validation accuracy at each difficulty. Lines: mean over seeds; bands: smallest to largest. Dashed: a "
        "guess among what the context offers; dotted: a guess among all tokens.",
        "各难度下的最终验证准确率。曲线为种子均值，色带为最小值到最大值。"
        "虚线：在上下文候选中猜测；点线：在全部 token 中盲猜。",
    ),
    "caption.steps_to_solve": (
        "When each run solves the probe: {solved} at the end, and the first validation that reached it. A mark for "
        "each run, seeds from top to bottom; hollow, to the right: not solved. Bars: median of the runs that solve it.",
        "每次训练何时解出探测任务：结束时{solved}，步数取首次达到该水平的验证。每个标记为一次训练，种子自上而下；"
        "右侧空心者未解出。竖线：解出者的中位数。",
    ),
    "caption.heads_forming": (
        "When heads form: the largest score of any head for (a) the previous token and (b) induction, at every "
        "validation. Lines: mean over the seeds that recorded it; bands: smallest to "
        "largest.",
        "注意力头的形成：每次验证时，所有头中 (a) 前一个 token、(b) 归纳得分的最大值。"
        "曲线为有记录的种子的均值，色带为最小值到最大值。",
    ),
    "caption.head_scores": (
        "Scores at the last step: the share of a head's attention that goes to the keys of each kind. "
        "In each layer, and for each kind anew, heads are sorted by their score; a cell is the mean over "
        "seeds of the heads with the same rank, because which head becomes one of a kind is chance.",
        "最后一步的得分：头分配给各类位置的注意力比例。每一层的头按各类得分分别排序；"
        "哪个头成为某一类是偶然的，因此每格为同一名次的头在各种子上的均值。",
    ),
    "heads.sentence": (
        "What each head attends to, recorded at every validation (training.head_scores): the token before (previous "
        "token), earlier occurrences of the same token (duplicate token), what followed these (induction), the token "
        "itself (current token) and the first token. A score of 1 means that all attention goes there. Scored on "
        "random tokens that repeat, or, of a probe, where its held-out examples ask for something. Exploratory: no "
        "hypothesis is decided by it.",
        "每个头关注的位置，每次验证时记录 (training.head_scores)：前一个 token、相同 token 的先前出现（重复 token）、"
        "紧随其后的 token（归纳）、当前 token 以及首个 token。得分为 1 表示全部注意力都在该处。"
        "在重复的随机 token 序列上计算；探测任务则在其留出样本的提问位置上计算。仅供探索，不用于判定任何假设。",
    ),
    "heads.table": (
        "The strongest head at the last step: mean over seeds of the largest score of any head. {scope}",
        "最后一步得分最高的头：所有头中最大得分在各种子上的均值。{scope}",
    ),
    "caption.parameter_distribution": (
        "Parameters (a) by role, hatched where frozen, and (b) by layer: the number of trainable parameters in each "
        "layer, shaded by the share that is frozen.",
        "参数分布：(a) 按用途，斜线为冻结部分；(b) 按层，数字为该层可训练参数量，底色深浅表示冻结比例。",
    ),
    "caption.by_parameters": (
        "Final validation {quality} against trainable parameters; bars: 95 % interval of the mean over seeds. Arms "
        "with equal counts are drawn side by side.",
        "最终验证{quality}与可训练参数量；误差线为种子间均值的 95 % 区间。参数量相同的实验组并排绘制。",
    ),
    "caption.speed": (
        "Time per step as a ratio to {baseline}, from interleaved measurement on one device, with 95 % intervals. "
        "Left of 1 is faster.",
        "每步用时与“{baseline}”之比，在同一设备上交错测量，附 95 % 区间。小于 1 表示更快。",
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
    "caption.tuning_by_solving": (
        " Values are chosen by solving first, so a ring need not be at the lowest loss.",
        "取值首先按是否解出任务选取，因此圆圈不一定位于损失最低处。",
    ),
    "caption.tuning_rounds": (
        " Thick lines: the last round, of {steps} steps, by which values are chosen. Thin lines: the shorter rounds.",
        "粗线为最后一轮（{steps} 步），取值据此选定；细线为步数较少的各轮。",
    ),
    "caption.tuning_curves": (
        " Dotted: the fitted curve, with a ring at its minimum.",
        "点线为拟合曲线，圆圈为其最小值。",
    ),
    "caption.tuning_many": (
        " With more than one key, each point shows the best over the other keys.",
        "网格含多个参数时，每点取其余参数上的最小值。",
    ),
    "caption.differences": (
        "Paired differences in {quality}, treatment minus control, with 95 % intervals; small marks: single seeds. "
        "Dashed: the margin; shaded: where the claim would hold. {side} 0 is better.",
        "{quality}的配对差异（处理组减对照组）及 95 % 区间；小标记为单个种子。虚线为界值，阴影为假设成立的区域。"
        "{side} 0 表示更好。",
    ),
    "caption.decomposition.percent": (
        "Where the difference comes from, in {quality}, with 95 % intervals.",
        "性能差距分解（{quality}变化）及 95 % 区间。",
    ),
    "caption.decomposition.points": (
        "Where the difference comes from, in percentage points of {quality}, with 95 % intervals.",
        "{quality}差距分解（百分点）及 95 % 区间。",
    ),
    "caption.memory": (
        "(a) Weights, gradients and optimizer moments as counted; (b) the largest memory of a run as measured.",
        "(a) 按参数计算的权重、梯度与优化器状态；(b) 实测的运行内存峰值。",
    ),
}

# ---- Sections in words ---------------------------------------------------------------------------------------------

_SECTIONS: dict[str, Phrase] = {
    "parameters.table": (
        "The arms: how their treated parts start, and whether they move ({scope}).",
        "各实验组：所处理部分的初始化方式及是否更新（{scope}）。",
    ),
    "arm.parts": ("{names}: {text}", "{names}：{text}"),
    "arm.between_parts": ("; ", "；"),
    **{f"start.{start.name}": start.words for start in STARTS.values()},
    "start.gain": (" × {gain}", "，增益 {gain}"),
    **{f"moves.{code}": (f", {english}", f"，{chinese}") for code, (english, chinese) in WHEN.items()},
    "moves.share_heads": (" (the first {percent} of the heads)", "（前 {percent} 的头）"),
    "moves.layers": (" (layers {layers}, counted from 0)", "（第 {layers} 层，从 0 计）"),
    "moves.layers_odd": (" (every second layer)", "（每隔一层）"),
    "moves.layers_even": (" (every second layer, the first among them)", "（每隔一层，含首层）"),
    "speed.no_bench": (
        "There is no readable bench, so this report says nothing about speed. The times of the runs cannot be "
        "compared: they were measured at different times, possibly on different machines and under different load. "
        "Measure with: oelm bench {study}",
        "没有可读取的基准测量，因此本报告不对速度下结论。各运行的用时不能互相比较：它们在不同时间、可能不同且繁忙程度不同的机器上"
        "测得。请运行：oelm bench {study}",
    ),
    "speed.bench": (
        "Measured separately from the runs: steps of the arms interleaved on one device, in random order within each "
        "of {blocks} undisturbed blocks. As a control, {baseline} was timed against itself: {control} {interval}. No "
        "interval here is narrower than this control allows.",
        "与训练分开测量：在同一设备上交错执行各组的训练步，共 {blocks} 个未受干扰的区组，组内顺序随机。作为对照，"
        "“{baseline}”与其自身之比为 {control} {interval}；此处任何区间都不窄于对照所允许的精度。",
    ),
    "speed.busy": (
        "The machine was busy while the speed was measured: {quiet} of {blocks} blocks were undisturbed, too few for a "
        "ratio. Measure again when nothing else runs: oelm bench {study}",
        "测量速度时机器繁忙：{blocks} 个区组中只有 {quiet} 个未受干扰，不足以给出比值。请在没有其他任务时重新运行："
        "oelm bench {study}",
    ),
    "speed.implausible": (
        "Implausible: {arm} took {ratio} {interval} of the time, less than any single component of its step allows "
        "({smallest} by arithmetic). Something other than the arm made the difference; do not rely on it.",
        "不合理：“{arm}”用时之比为 {ratio} {interval}，低于训练步任何单一组成部分所允许的值（按计算量为 {smallest}）。"
        "差异另有原因，请勿采信。",
    ),
    "speed.table": (
        "Steps per hour in the runs (indicative), and the ratio from the bench ({scope}).",
        "各运行的步/小时（仅供参考）及基准测得的用时比（{scope}）。",
    ),
    "speed.table_no_bench": (
        "Steps per hour in the runs: indicative only ({scope}).",
        "各运行的步/小时，仅供参考（{scope}）。",
    ),
    "target.sentence": (
        "The target is {percent} above the final perplexity of {baseline}: {target}.",
        "目标比“{baseline}”的最终困惑度高 {percent}：{target}。",
    ),
    "target.none": (
        "No target yet: {baseline} has no finished run.",
        "尚无目标值：“{baseline}”没有已完成的运行。",
    ),
    "target.table": (
        "Steps, tokens, training time and arithmetic to the target ({scope}).",
        "达到目标所需的步数、token 数、训练时间与计算量（{scope}）。",
    ),
    "tuning.none": (
        "Nothing was tuned in this study.",
        "本实验未做调优。",
    ),
    "tuning.open": (
        "Tuning is not finished; the losses so far are in runs.csv.",
        "调优尚未结束；目前的损失见 runs.csv。",
    ),
    "tuning.rounds": (
        "Halving ({scope}): every round runs a complete schedule, and values at most {margin} nats behind the best "
        "continue with more steps. How far a value is behind is the mean paired difference over the tuning seeds "
        "without the seed that is worst for it, so no single seed can drop a value.",
        "逐轮淘汰（{scope}）：每一轮都跑完整个学习率计划，落后最优值不超过 {margin} nats 的取值以更多步数进入下一轮。"
        "落后幅度为调优种子上配对差值的均值，并去掉对该取值最不利的一个种子，因此单个种子不会使任何取值被淘汰。",
    ),
    "tuning.diverged": ("diverged", "发散"),
    "tuning.curves": (
        "The fitted optimum ({scope}): the minimum of a quadratic in the logarithm of the learning rate through the "
        "best value tried and its two neighbours, with the tuning seeds as blocks. It is the optimum of tuning runs of "
        "{steps} steps; that of longer runs may differ.",
        "拟合最优值（{scope}）：以学习率的对数为自变量，过所试最优值及其两侧相邻取值的二次曲线的最小值，以调优种子为区组。"
        "它是 {steps} 步调优运行的最优值，更长的运行可能不同。",
    ),
    "tuning.extended": (
        "The grid was extended beyond the declared points: {key} = {values}.",
        "网格已在声明的取值之外扩展：{key} = {values}。",
    ),
    "tuning.extended_at": (
        "The grid of {sizes} was extended beyond the declared points: {key} = {values}.",
        "{sizes} 的网格已在声明的取值之外扩展：{key} = {values}。",
    ),
    "decomposition.none": (
        "The arms of this study do not include the pairs of the ablation.",
        "本实验的实验组不包含消融分析所需的配对。",
    ),
    "decomposition.table": ("The ablation, step by step ({scope}).", "消融分解（{scope}）。"),
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
        "Memory ({scope}): counted for weights, gradients and moments; measured as the largest over the runs.",
        "内存（{scope}）：权重、梯度与优化器状态按参数计算；峰值为各运行实测最大值。",
    ),
    "curves.none": (
        "There is no finished run with stored metrics yet.",
        "目前没有存有训练指标的已完成运行。",
    ),
    "confounds.none": (
        "Between the arms of each hypothesis nothing differs but the declared treatment.",
        "各假设的两组之间，除声明的处理外没有其他差异。",
    ),
    "confounds.none_but_tuned": (
        "Between the arms of each hypothesis nothing differs but the declared treatment and what the same grid chose "
        "for each arm ({keys}: see Tuning).",
        "各假设的两组之间，除声明的处理和同一网格为各组选出的取值（{keys}，见“超参数调优”）外，没有其他差异。",
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
    "unfinished.unmeasured": ("finished, but {file} has no {key}", "已完成，但 {file} 中没有 {key}"),
    "unfinished.waiting": ("waiting for tuning", "等待调优"),
    "cite.sentence": (
        "If this study helps your research, please cite it and the software.",
        "如果本实验对您的工作有帮助，请引用本实验及所用软件。",
    ),
    "files.sentence": (
        "With this report: comparison_table (text, CSV), hypothesis_validation.txt, runs.csv with every run, "
        "analysis_results.json with every number, tables and numbers as LaTeX (tables.*.tex, numbers.tex), and "
        "the figures as PNG, SVG and PDF.",
        "随报告提供：comparison_table（文本、CSV）、hypothesis_validation.txt、包含全部运行的 runs.csv、"
        "包含全部数值的 analysis_results.json、LaTeX 格式的表格与数值（tables.*.tex、numbers.tex），"
        "以及 PNG、SVG 与 PDF 格式的图。",
    ),
}

# ---- Conclusions and next steps -------------------------------------------------------------------------------------

_CONCLUSIONS: dict[str, Phrase] = {
    "conclusions.table": ("The hypotheses and what the runs say ({scope}).", "假设与实验结论（{scope}）。"),
    "conclusions.pairs": ("{ahead} : {behind} pairs", "{ahead} : {behind} 对"),
    "conclusions.consequence": ("What follows from {names}: {text}", "由 {names} 得出：{text}"),
    "next.title": ("Next steps", "后续行动"),
    "next.finish": (
        "Finish what is missing with: oelm run {study}",
        "补齐缺少的运行：oelm run {study}",
    ),
    "next.confounds": (
        "Remove or explain the confounds listed below before anything is concluded from: {names}.",
        "在对 {names} 下结论之前，先消除或解释下文列出的混杂因素。",
    ),
    "next.tune": (
        "Tune the learning rate per arm on one grid before drawing conclusions from small differences.",
        "在对微小差异下结论之前，先让各实验组在同一网格上调优学习率。",
    ),
    "next.edge": (
        "Use a wider grid where an optimum lies at its edge: {arms}.",
        "在最优值位于网格边缘处使用更宽的网格：{arms}。",
    ),
    "next.floor": (
        "Train or tune longer, all arms alike: {arms} did not get clearly beyond the floor.",
        "对所有实验组一视同仁地延长训练或调优：{arms} 未能明显超出下限。",
    ),
    "next.diverged": (
        "Look at the diverged runs of {arms}: a lower rate or a longer warm-up may be needed, for all arms alike.",
        "检查 {arms} 的发散运行：可能需要更低的学习率或更长的 warmup，且对所有组一视同仁。",
    ),
    "next.fresh": (
        "Add no seeds here and change no settings to decide what is open: p-values are valid for the plan as it was "
        "declared. Declare a new study with seeds that were never used: oelm new --confirm {study} writes it, oelm "
        "plan says what it can show, and its looks end it early where that suffices.",
        "不要为了得出结论而在本实验中增加种子或更改设置：p 值只对事先声明的计划有效。请用从未使用过的种子声明新实验："
        "由 oelm new --confirm {study} 生成，oelm plan 说明它能检验什么，若提前足以判断，其检视会提前结束实验。",
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
    "note.not_fitted_edge": (
        "{arm}: no optimum could be fitted, because the best value has no neighbour on one side; the final runs use "
        "{value}, the best value of the grid.",
        "{arm}：最优取值的一侧没有相邻取值，无法拟合最优值；最终运行使用网格上的最优取值 {value}。",
    ),
    "note.not_fitted_diverged": (
        "{arm}: no optimum could be fitted, because fewer than three tuning seeds finished with the best value and "
        "both its neighbours; the final runs use {value}, the best value of the grid.",
        "{arm}：在最优取值及其两侧相邻取值上都完成的调优种子不足三个，无法拟合最优值；"
        "最终运行使用网格上的最优取值 {value}。",
    ),
    "note.not_fitted_flat": (
        "{arm}: no optimum could be fitted, because the losses at the best value and its neighbours have no minimum; "
        "the final runs use {value}, the best value of the grid.",
        "{arm}：最优取值及其相邻取值上的损失没有最小值，无法拟合最优值；最终运行使用网格上的最优取值 {value}。",
    ),
    "note.not_fitted_outside": (
        "{arm}: the minimum of the fitted curve lies beyond the neighbours of the best value; the final runs use "
        "{value}, the best value of the grid.",
        "{arm}：拟合曲线的最小值在最优取值的相邻取值之外；最终运行使用网格上的最优取值 {value}。",
    ),
    "note.all_points_diverged": (
        "{arm}: every point of the grid diverged; it has no final runs.",
        "{arm}：网格上所有取值均发散，没有最终运行。",
    ),
    "note.tuning_at_floor": (
        "{arm}: at the best point of the grid the tuning runs reach {reached}, not clearly {better} {floor} "
        "({nothing}). Its value was chosen by noise; tune with more steps.",
        "{arm}：网格上最优取值的调优运行为 {reached}，并不明显{better}于 {floor}（{nothing}）。"
        "该取值由噪声决定；应以更多步数调优。",
    ),
    "note.at_floor": (
        "{arm}: {reached} is not clearly {better} the floor of {floor} ({nothing}). It may have learnt nothing; then "
        "differences from it say nothing about the method.",
        "{arm}：{reached} 并不明显{better}于下限 {floor}（{nothing}）。"
        "它可能尚未学到任何内容，与它的差异难以说明方法的优劣。",
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
    "note.sources_not_comparable": (
        "It is unknown whether all finished runs used the same sources: their digests use schemes {schemes}.",
        "无法判断各已完成运行的源代码是否相同：其摘要按不同方案（{schemes}）计算。",
    ),
    "note.bench_sources_not_comparable": (
        "Whether the bench measured the sources that the runs used is not known: its digest was taken by scheme "
        "{bench}, theirs by {runs}.",
        "无法判断基准测量与运行所用的源代码是否相同：前者的摘要按方案 {bench} 计算，后者按方案 {runs}。",
    ),
    "note.bench_of_other_sources": (
        "The bench measured other sources ({bench}) than the runs used ({runs}).",
        "基准测量所用的源代码（{bench}）与运行所用的（{runs}）不同。",
    ),
    "note.damaged": (
        "A stored run is damaged and not counted; oelm run runs it again. {line}",
        "有一个已存储的运行已损坏，不计入任何数字；oelm run 会重新运行它。{line}",
    ),
    "note.bench_disturbed": (
        "Disturbed blocks of the bench, which were left out: {disturbed} of {blocks}.",
        "基准测量的 {blocks} 个区组中有 {disturbed} 个受到干扰，未计入。",
    ),
    "note.bench_not_rebuilt": (
        "The contenders of the bench were not rebuilt for each block, so differences caused by memory placement remain "
        "in the ratios.",
        "基准测量未在每个区组重新构建各实验组，由内存位置造成的差异会留在比值中。",
    ),
    "note.unreadable": ("Not readable: {line}", "无法读取：{line}"),
    "provenance.study_digest": ("study digest (SHA-256)", "实验声明摘要 (SHA-256)"),
    "provenance.runs": ("stored runs", "已存运行"),
    "provenance.runs_value": ("{runs} (final {final}, tuning {tuning})", "{runs}（最终 {final}，调优 {tuning}）"),
    "provenance.seals": ("seals of ended runs", "已结束运行的封存"),
    "provenance.seals_value": (
        "{sealed} sealed and unchanged since, {unsealed} unsealed (of an older format, consistent)",
        "{sealed} 次已封存且此后未变，{unsealed} 次未封存（旧格式，内容一致）",
    ),
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
    "provenance.bench": ("bench", "基准测量"),
    "provenance.bench_value": (
        "{created}; {blocks} blocks, {undisturbed} of them undisturbed; sealed",
        "{created}；{blocks} 个区组，其中 {undisturbed} 个未受干扰；已封印",
    ),
    "provenance.check": ("check of the machine", "机器检查"),
    "provenance.check_value": (
        "{created} on {device}: {passed} passed, {fail} failed, {skipped} skipped",
        "{created}，{device}：通过 {passed} 项，失败 {fail} 项，跳过 {skipped} 项",
    ),
    "provenance.check_failed": ("failed: {name} ({said})", "失败：{name}（{said}）"),
    "provenance.check.efficiency": (
        "{processes} GPUs in parallel at {efficiency:.0%} efficiency",
        "{processes} 个 GPU 并行效率 {efficiency:.0%}",
    ),
    "provenance.gpus": ("GPUs", "GPU"),
    "provenance.gpu_drivers": ("GPU driver", "GPU 驱动"),
    "provenance.compute_value": (
        "{total} (final runs {final}, tuning {tuning})",
        "{total}（最终运行 {final}，调优 {tuning}）",
    ),
    "provenance.model": ("model", "模型配置"),
    "provenance.training": ("training", "训练配置"),
    "provenance.unknown": ("not recorded", "未记录"),
}

# ---- What was written down beforehand, and what the folder holds besides ---------------------------------------------

_CHINESE_REMARKS = {
    "other_config": "此处有 {runs} 次已完成的运行属于另一配置：{differences}",
    "other_data": "此处有 {runs} 次已完成的运行使用了其他数据，不计入：摘要 {digests}，而非 {counted}",
    "other_arms": "此处有 {runs} 次已完成的运行属于本实验没有的实验组：{names}",
    "other_seeds": "此处有 {runs} 次已完成的运行使用了本实验没有的随机种子：{seeds}",
    "other_points": "此处有 {runs} 次已完成的调优运行不在网格上，未用于任何选择：{points}",
    "unchosen": "此处有 {runs} 次已完成的最终运行不计入：其取值（{points}）"
    "不是由现有的调优运行选定的，也没有存储的选择与之对应",
    "unlike_copies": "同一计算的多次已完成运行给出了不同的数值，每对中只计入前者：{copies}；请将不应计入的运行移到别处",
    "other_execution": "此处有 {runs} 次已完成的运行，其计算方式与本实验现在的声明不同，但仍然计入：{differences}",
    "same_losses": "同一实验组中随机种子不同的已完成运行自始至终给出完全相同的损失：{copies}；"
    "其中一次是另一次的副本，或者随机种子不起作用",
    "bench_other_names": "基准测量中的以下实验组现已改名，测量结果仍适用于它们：{names}",
    "bench_other_config": "基准测量属于另一配置：{differences}；请重新测量：oelm bench {study}",
    "choice_contradicted": "{arm}：{chosen} 于 {made} 选定并保持不变；按现有的调优运行则会选择 {now}",
    "choice_runs_changed": "{arm}：{chosen} 于 {made} 选定并保持不变，但所依据的调优运行已与当时不同：{changes}",
    "round_contradicted": "{arm}：第 {number} 轮调优淘汰的取值于 {made} 存储并保持不变；"
    "按现有的调优运行则会淘汰：{now}",
    "choice_replaced": "{arm}：{made} 的选择属于另一声明（{differences}）；没有最终运行使用过它，将由新的选择取代",
    "choices_damaged": "{line}；不启动任何运行：请恢复该文件，或将其删除，按现有的调优运行重新选择",
    "choices_other_declaration": "{file}：{made} 为 {names} 选定的取值属于另一声明（{differences}），"
    "且已有最终运行使用；不启动任何运行：请撤销修改，或删除该文件以重新选择",
    "choices_not_stored": "以下各组的取值在选定时没有存储，此处按现有的调优运行得出：{names}",
    "choices_stored_late": "选定的取值于 {made} 存储，当时已有 {runs} 次使用它们的最终运行启动",
    "looks_other_declaration": "{file}：各次检视（首次于 {made}）属于另一声明（{differences}）；"
    "不启动任何运行：请撤销修改，或删除该文件以重新检视",
    "looks_other_runs": "{file}：各次检视（首次于 {made}）所用的运行不在现有计划之内（{names}）；"
    "不启动任何运行：请撤销修改，或删除该文件以重新检视",
    "look_runs_changed": "自 {made} 起的检视保持不变，但所用的运行已与当时不同：{changes}",
    "look_stored_late": "第 {look} 次检视于 {made} 存储，当时已有 {runs} 次超出其范围的运行启动",
}
_CHINESE_REGISTRATION = {
    "none": "未登记",
    "waiting": "登记于 {registered}，当时尚无运行启动",
    "before": "登记于 {registered}，早于第一次运行启动（{first}）",
    "before_final": "登记于 {registered}，早于任何最终运行启动；当时调优已开始",
    "after": "登记于 {registered}，当时已有最终运行启动：{runs} 次中的 {early} 次，最早于 {first}",
    "after_undated": "登记于 {registered}，当时已有最终运行启动：{runs} 次中的 {early} 次",
    "undated": "登记于 {registered}；无法证明登记早于最终运行：{runs} 次中有 {undated} 次没有记录启动时间",
    "damaged": "{line}；请恢复该文件，或将其删除后重新登记",
    "unchanged": "此后未修改",
    "changed": "此后的修改：{changes}",
    "later": "此后又登记了另一声明，当时运行已启动：{times}",
}
_WRITTEN_DOWN: dict[str, Phrase] = {
    "differences.now": (NOW, "，现为 "),
    **{
        f"note.{each}": (f"{SENTENCES[each]}.", f"{chinese}。")
        for code, chinese in _CHINESE_REMARKS.items()
        for each in (code, f"{code}.one")
        if each in SENTENCES
    },
    **{
        f"registration.{code}": (SENTENCES[f"registration.{code}"], chinese)
        for code, chinese in _CHINESE_REGISTRATION.items()
    },
    "registration.source": ("by oelm {version} at commit {commit}", "oelm {version}，代码提交 {commit}"),
    "registration.dirty_source": (
        "by oelm {version} at commit {commit} with uncommitted changes",
        "oelm {version}，代码提交 {commit}，含未提交修改",
    ),
    "registration.clocks": (
        "the times are those of the clocks of the machines that wrote them",
        "时间均为写入时所在机器的时钟",
    ),
    "registration.changes": ("Changed since the registration", "登记后的修改"),
    "registration.change": ("{key}: {then}, now {now}", "{key}：登记时为 {then}，现为 {now}"),
    "registration.more_changes": (
        "And {count} more: see analysis_results.json.",
        "另有 {count} 项，见 analysis_results.json。",
    ),
    "provenance.registration": ("registration", "预先登记"),
    "provenance.choices": ("chosen values", "选定的取值"),
    "provenance.choices_value": (
        "stored at {made}, before the first final run",
        "于 {made} 存储，早于第一次最终运行",
    ),
}

# ---- What a measure and a kind of model are called -------------------------------------------------------------------

_NAMES: dict[str, Phrase] = {
    "read": ("tokens", "token 数"),
    "points.one": ("{number} point", "{number} 个百分点"),
    "points.many": ("{number} points", "{number} 个百分点"),
    "unit.name.percent": ("per cent", "百分比"),
    "unit.name.points": ("percentage points", "百分点"),
    "lower.better": ("below", "低"),
    "lower.worse": ("above", "高"),
    "lower.side": ("Left of", "小于"),
    "higher.better": ("above", "高"),
    "higher.worse": ("below", "低"),
    "higher.side": ("Right of", "大于"),
}

WORDS: dict[str, Phrase] = {
    **_FRAME, **_COMPLETENESS, **_VERDICTS, **_CLAIMS, **_TABLE, **_FIGURES, **_SECTIONS, **_CONCLUSIONS, **_PROVENANCE,
    **_WRITTEN_DOWN, **_NAMES, **MORE_WORDS, **LOOK_WORDS, **SCALE_WORDS,
}  # fmt: skip


def say(language: Language, code: str, /, **facts: object) -> str:
    """The phrase of a code. Facts are inserted as they are, braces in them included."""
    return in_words(WORDS[code], language).format(**facts)


def in_words(phrase: Phrase, language: Language) -> str:
    return phrase[LANGUAGES.index(language)]


def say_of(study: Study, language: Language, code: str, /, **facts: object) -> str:
    """In the words of a study: those of its kind of model or of its measure, where they have their own."""
    return in_words(_phrase_of(study, code), language).format(**_names_in(study, language) | facts)


def _phrase_of(study: Study, code: str) -> Phrase:
    if study.fine_tunes and code in ENCODER_WORDS:
        return ENCODER_WORDS[code]
    measure = study.measure
    return measure.words.get(code) or WORDS.get(f"{code}.{measure.scale.key}") or WORDS[code]


def _names_in(study: Study, language: Language) -> dict[str, object]:
    """What any phrase may call by name."""
    measure = study.measure
    read = (ENCODER_WORDS if study.fine_tunes else WORDS)["read"]
    return {
        "quality": in_words(measure.name, language),
        "unit": say(language, f"unit.name.{measure.scale.key}"),
        "read": in_words(read, language),
        "nothing": in_words(measure.floor_names[0], language),
        "little": in_words(measure.floor_names[1], language),
        **{name: say(language, f"{measure.better}.{name}") for name in ("better", "worse", "side")},
    }


def phrases() -> Iterator[tuple[str, Phrase]]:
    """All of them, by code: also those that stand in place of others."""
    yield from WORDS.items()
    yield from ENCODER_WORDS.items()
    for measure in MEASURES.values():
        yield f"{measure.key}.name", measure.name
        yield from ((f"{measure.key}.floor", name) for name in measure.floor_names)
        yield from measure.words.items()


def say_or_code(language: Language, code: str, facts: Mapping[str, object], *, study: Study | None = None) -> str:
    """For codes another version of the analysis may have added: better a code with its numbers than no report."""
    try:
        return say(language, code, **facts) if study is None else say_of(study, language, code, **facts)
    except (KeyError, IndexError):
        name = code.partition(".")[2].replace("_", " ")
        return f"{name}: " + ", ".join(f"{key} {value}" for key, value in facts.items()) if facts else name


def characters(language: Language) -> str:
    """Every character the phrases of a language use: what a font must have."""
    return "".join(sorted({character for _, phrase in phrases() for character in in_words(phrase, language)}))
