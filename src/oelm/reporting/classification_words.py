"""What a report says only where the runs classify. A code that ends in `.classification` replaces the phrase before it.

Also the studies side by side, whose rows may be of either kind.
"""

from __future__ import annotations

Phrase = tuple[str, str]  # English, Chinese

# ---- Verdicts ------------------------------------------------------------------------------------------------------

_VERDICTS: dict[str, Phrase] = {
    "unit.point": ("{number} point", "{number} 个百分点"),
    "unit.points": ("{number} points", "{number} 个百分点"),
    "verdicts.method.classification": (
        "Differences are treatment minus control in accuracy, in percentage points, paired over seeds; above zero the "
        "treatment is better. A claim is supported when its one-sided paired t test, Holm-adjusted over the "
        "confirmatory hypotheses about accuracy (here {family}), reaches p <= 0.05; it is refuted when the one-sided "
        "95 % bound, which is not adjusted, lies beyond it. The exact sign-flip test stands beside; with few pairs it "
        "cannot become small. Fewer than three pairs give no p-value. McNemar's tests of single pairs decide nothing.",
        "差异为处理组减对照组的准确率（百分点），按随机种子配对；大于零表示处理组更好。单侧配对 t 检验的 p 值在 "
        "{family} 个关于准确率的验证性假设上作 Holm 校正后不超过 0.05 时判为支持；未经校正的单侧 95 % 界落在另一侧时"
        "判为否定。并列出精确符号翻转检验；对数少时它不可能很小。不足三对时不给出 p 值。"
        "单对运行的 McNemar 检验不参与判定。",
    ),
    "criterion.not_worse.classification": (
        "{treatment}: accuracy at most {margin} below that of {control}",
        "“{treatment}”的准确率最多比“{control}”低 {margin}",
    ),
    "criterion.equivalent.classification": (
        "{treatment}: accuracy within {margin} of that of {control}, either way",
        "“{treatment}”与“{control}”的准确率相差不超过 {margin}",
    ),
    "criterion.better.classification": (
        "{treatment}: accuracy above that of {control}",
        "“{treatment}”的准确率高于“{control}”",
    ),
    "criterion.better_by.classification": (
        "{treatment}: accuracy above that of {control} by more than {margin}",
        "“{treatment}”的准确率比“{control}”高 {margin} 以上",
    ),
    "reason.accuracy_shown": (
        "Shown by {pairs} pairs: the accuracy differs by {points}, significant at the 5 % level.",
        "{pairs} 对结果表明假设成立：准确率差异为 {points}，在 5 % 水平上显著。",
    ),
    "reason.accuracy_contradicted": (
        "Contradicted by {pairs} pairs: the accuracy differs by {points}; the bound that decides is {bound_points}.",
        "{pairs} 对结果与假设相反：准确率差异为 {points}，起决定作用的界为 {bound_points}。",
    ),
    "reason.accuracy_not_shown": (
        "Neither shown nor contradicted by {pairs} pairs: the accuracy differs by {points}, too uncertain to place it "
        "on one side.",
        "{pairs} 对结果既不能证实也不能否定：准确率差异为 {points}，不确定性过大，无法归于任何一侧。",
    ),
    "reason.accuracy_zero_variance": (
        "All {pairs} pairs differ by exactly the same amount ({points}): there is nothing to measure chance by.",
        "{pairs} 对的差异完全相同（{points}），无法衡量偶然性。",
    ),
    "box.at_chance": (
        "{arm} is no better than chance: it has learnt nothing, so this verdict says little about the method.",
        "“{arm}”并不优于随机水平：它没有学到任何内容，此结论难以说明方法的优劣。",
    ),
    "box.mcnemar": ("McNemar's p", "McNemar p 值"),
    "box.mcnemar_value": ("by seed: {values}", "各种子：{values}"),
    "box.mcnemar_seed": ("{seed}: {p}", "{seed}：{p}"),
}

# ---- Tables and sections -------------------------------------------------------------------------------------------

_TABLES: dict[str, Phrase] = {
    "column.accuracy": ("accuracy", "准确率"),
    "column.difference_points": ("difference, points", "差异（百分点）"),
    "column.training_examples": ("training examples", "训练样本数"),
    "column.both_right": ("both right", "都对"),
    "column.treatment_only": ("only treatment", "仅处理组对"),
    "column.control_only": ("only control", "仅对照组对"),
    "column.both_wrong": ("both wrong", "都错"),
    "column.p": ("p", "p 值"),
    "table.quality.classification": (
        "Quality: mean ± standard deviation over seeds; difference in accuracy from {baseline}, in percentage points, "
        "paired over seeds, with its 95 % interval; adjusted p where a hypothesis compares the arm with {baseline}; "
        "time of a step as a ratio to {baseline}, by oelm bench.",
        "质量：种子间均值 ± 标准差；与 {baseline} 的准确率差异（百分点）按种子配对，附 95 % 区间；仅当有假设将该组与 "
        "{baseline} 比较时给出校正 p 值；每步用时与 {baseline} 之比由 oelm bench 测得。",
    ),
    "table.tuned.classification": (
        "Tuned per arm on one grid, chosen by the loss on the tuning split (which is finer than accuracy there): "
        "{keys}.",
        "各实验组在同一网格上调优，按调优集上的损失选取（比该集上的准确率更细）：{keys}。",
    ),
    "heading.examples": ("Example by example", "逐样本比较"),
    "examples.sentence": (
        "McNemar's test asks whether two trained models differ on these examples; the paired seeds above ask whether "
        "the method does. Seeds are not pooled, because they share the examples.",
        "McNemar 检验回答两个训练好的模型在这些样本上是否不同；上面的种子配对检验回答方法本身是否不同。"
        "各种子共用同一批样本，因此不合并。",
    ),
    "examples.error": (
        "An accuracy of {accuracy} on {examples} examples has a standard error of {error} over the draw of the "
        "examples, however many seeds there are.",
        "在 {examples} 个样本上，{accuracy} 的准确率因样本抽取而有标准误 {error}，与种子数无关。",
    ),
    "examples.documents": (
        "The documents' gain of +1.08 points rests on one seed and 2,490 examples, where the standard error of one "
        "accuracy is 0.85 points, and that of the difference of two independent ones 1.2.",
        "文档中 +1.08 个百分点的提升来自一个种子和 2,490 个样本：单个准确率的标准误为 0.85 个百分点，"
        "两个独立准确率之差的标准误为 1.2 个百分点。",
    ),
    "examples.table": (
        "How often the treatment and the control of the hypotheses are right on the same examples, by seed, with the "
        "exact two-sided McNemar test.",
        "各假设的处理组与对照组在相同样本上的对错，按种子列出，附精确双侧 McNemar 检验。",
    ),
    "examples.none": (
        "No pair of finished runs has predictions that can be compared.",
        "没有可供逐样本比较的成对预测。",
    ),
    "note.tuning_at_chance": (
        "{arm}: the best point of the grid reached an accuracy of {accuracy} on the tuning split, not clearly (two "
        "standard errors) better than always naming the commonest label. Its value was chosen by noise; tune with more "
        "steps.",
        "{arm}：网格上最优取值在调优集上的准确率为 {accuracy}，并不明显（两个标准误）优于总是预测最常见的类别。"
        "该取值由噪声决定；应以更多步数调优。",
    ),
    "note.at_chance": (
        "{arm}: with an accuracy of {accuracy} none of its runs is clearly (two standard errors) better than always "
        "naming the commonest label. It has learnt nothing yet, and differences from it say little about the method.",
        "{arm}：准确率为 {accuracy}，没有一次运行明显（两个标准误）优于总是预测最常见的类别。"
        "它尚未学到任何内容，与它的差异难以说明方法的优劣。",
    ),
    "next.any.chance": (
        "Train or tune longer, all arms alike: {arms} did not get beyond chance.",
        "对所有实验组一视同仁地延长训练或调优：{arms} 未能超出随机水平。",
    ),
    "note.predictions_missing": (
        "{hypothesis}: not compared by example for seed {seeds}: a run of the pair stored no predictions that can be "
        "read.",
        "{hypothesis}：种子 {seeds} 未作逐样本比较，其中一次运行没有可读的预测结果。",
    ),
    "note.predictions_unlike": (
        "{hypothesis}: not compared by example for seed {seeds}: the predictions of the pair are of different examples "
        "or in a different order.",
        "{hypothesis}：种子 {seeds} 未作逐样本比较，两次运行的预测不是同一批样本或顺序不同。",
    ),
    "note.predictions_disagree": (
        "{hypothesis}: not compared by example for seed {seeds}: the stored predictions give another accuracy than the "
        "result of the run.",
        "{hypothesis}：种子 {seeds} 未作逐样本比较，所存预测的准确率与运行结果不一致。",
    ),
    "start.keep": ("as pretrained", "保留预训练权重"),
    "start.orthogonalised": ("pretrained, made orthonormal per head", "预训练权重按头正交化"),
    "step.baseline_to_frozen_pretrained": ("freezing what was pretrained", "冻结预训练的 Q/K"),
    "step.pretrained_to_orthogonalised": ("making it orthonormal per head", "按头正交化"),
    "step.orthogonalised_to_fresh": ("a fresh draw instead of the learnt directions", "以随机重抽取代预训练方向"),
    "step.baseline_to_frozen.classification": (
        "all together: fresh, orthogonal per head, frozen",
        "三者合计：重新分头正交初始化并冻结",
    ),
    "provenance.encoder_sources": ("encoder", "编码器"),
    "provenance.encoder_digests": ("encoder's files (SHA-256)", "编码器文件摘要 (SHA-256)"),
}

# ---- Figures -------------------------------------------------------------------------------------------------------

_FIGURES: dict[str, Phrase] = {
    "axis.examples": ("training examples", "训练样本数"),
    "axis.accuracy": ("validation accuracy (%)", "验证准确率 (%)"),
    "axis.validation_loss": ("validation loss (nats per example)", "验证损失（nats / 样本）"),
    "axis.train_loss.classification": ("training loss (nats per example)", "训练损失（nats / 样本）"),
    "axis.difference_points": ("difference in accuracy (percentage points)", "准确率差异（百分点）"),
    "axis.embeddings.classification": ("emb., head", "嵌入与分类头"),
    "role.type_embedding": ("segment embedding", "句段嵌入"),
    "role.head": ("pooler and head", "池化与分类头"),
    "caption.final_accuracy": (
        "Final validation accuracy. Small marks: single seeds; large: their mean, with its 95 % interval over seeds "
        "where there are two or more.",
        "最终验证准确率。小标记为单个种子；大标记为均值，有两个及以上种子时附 95 % 区间。",
    ),
    "caption.validation_accuracy": (
        "Validation accuracy against (a) steps, (b) training examples and (c) training time. Lines: mean over finished "
        "seeds; bands: smallest to largest. Measured on the smaller set of the curve, so its end may differ a little "
        "from the final number.",
        "验证准确率随 (a) 步数、(b) 训练样本数、(c) 训练时间的变化。曲线为已完成种子的均值，色带为最小值到最大值。"
        "曲线在较小的验证集上测得，末端可能与最终数值略有不同。",
    ),
    "caption.validation_loss": (
        "Validation loss against (a) steps, (b) training examples and (c) training time, on the same set.",
        "验证损失随 (a) 步数、(b) 训练样本数、(c) 训练时间的变化，在同一验证集上测得。",
    ),
    "caption.training_loss.classification": (
        "Training loss against (a) steps, (b) training examples and (c) training time. Lines: mean over finished "
        "seeds; bands: smallest to largest.",
        "训练损失随 (a) 步数、(b) 训练样本数、(c) 训练时间的变化。曲线为已完成种子的均值，色带为最小值到最大值。",
    ),
    "caption.accuracy_by_parameters": (
        "Final validation accuracy against trainable parameters; bars: 95 % interval of the mean over seeds. Arms with "
        "equal counts are drawn side by side.",
        "最终验证准确率与可训练参数量；误差线为种子间均值的 95 % 区间。参数量相同的实验组并排绘制。",
    ),
    "caption.differences.classification": (
        "Paired differences in accuracy, treatment minus control, with 95 % intervals; small marks: single seeds. "
        "Dashed: the margin; shaded: where the claim would hold. Right of 0 is better.",
        "准确率的配对差异（处理组减对照组）及 95 % 区间；小标记为单个种子。虚线为界值，阴影为假设成立的区域。"
        "大于 0 表示更好。",
    ),
    "caption.decomposition.classification": (
        "Where the difference comes from, in percentage points of accuracy, with 95 % intervals.",
        "准确率差距分解（百分点）及 95 % 区间。",
    ),
}

# ---- Next steps ----------------------------------------------------------------------------------------------------

_NEXT: dict[str, Phrase] = {
    "scenario.better.classification": (
        "“{arm}” beats “{baseline}” here: the idea of the extreme learning machine holds for this encoder and task. "
        "Promote it to larger ones.",
        "“{arm}”优于“{baseline}”：ELM 理论在该编码器与任务上得到验证。建议推广到更大规模。",
    ),
    "scenario.equal.classification": (
        "“{arm}” stays within the declared margin of “{baseline}”, which the documents' table calls about equal (the "
        "table above shows whether it is worse at all). The idea has some effect: optimise it.",
        "“{arm}”与“{baseline}”的差异在预先声明的界值之内，即文档所说的“大致相当”（是否存在差距见上表）。"
        "ELM 有一定效果：建议优化实现。",
    ),
    "scenario.worse.classification": (
        "“{arm}” is worse than “{baseline}” by more than the declared margin: rethink, and find out why. The ablation "
        "shows whether the freezing costs it or the loss of what was pretrained.",
        "“{arm}”差于“{baseline}”，且超出声明的界值：需要重新思考，分析原因。消融分析说明代价来自冻结还是来自丢失预训练权重。",
    ),
    "scenario.unknown.classification": (
        "The runs do not decide yet whether “{arm}” is better than, about equal to or worse than “{baseline}”.",
        "目前的运行尚不足以判断“{arm}”相对“{baseline}”是更好、相当还是更差。",
    ),
    "next.classification.better.larger": (
        "Repeat with a larger encoder, all of the training data and several dev sets (XNLI's languages, MNLI matched "
        "and mismatched), with a baseline that matches published accuracy.",
        "用更大的编码器、全部训练数据和多个验证集（XNLI 各语言、MNLI matched 与 mismatched）重复，并使基线达到"
        "公开结果的准确率。",
    ),
    "next.classification.better.twin": (
        "Add the trained twin of the frozen arm: is it the start or the freezing that helps?",
        "增加冻结组的可训练孪生组：起作用的是初始化还是冻结？",
    ),
    "next.classification.better.why": (
        "Tune weight decay, dropout and the number of steps of both arms on one grid, to exclude that freezing only "
        "regularises.",
        "在同一网格上对两组的权重衰减、dropout 和步数调优，排除冻结只是起到正则化作用。",
    ),
    "next.classification.equal.cost": (
        "Turn equality into a gain: measure with oelm bench what the skipped gradients save, and use the memory saved "
        "for longer sentences or a larger batch.",
        "把“相当”变成收益：用 oelm bench 测量省去的梯度计算，并用省下的内存容纳更长的句子或更大的批量。",
    ),
    "next.classification.equal.seeds": (
        "Add seeds and examples until the interval lies well inside the margin, then go to a larger encoder.",
        "增加随机种子和样本，直到区间明显落在界值之内，再转向更大的编码器。",
    ),
    "next.classification.worse.keep": (
        "Keep what was learnt: freeze the pretrained queries and keys, or their orthonormal form, instead of a fresh "
        "draw (arms frozen_pretrained, frozen_orthogonalised).",
        "保留已学到的内容：冻结预训练的 Q/K 或其正交化形式，而不是重新随机初始化（实验组 frozen_pretrained、"
        "frozen_orthogonalised）。",
    ),
    "next.classification.worse.schedule": (
        "Freeze for a time: late or layer-by-layer unfreezing, or train first and then freeze (arms late_unfreeze, "
        "progressive_unfreeze, train_then_freeze), or a share of the heads (frozen_half, frozen_quarter).",
        "按时间表冻结：训练后期解冻、逐层解冻，或先训练后冻结（实验组 late_unfreeze、progressive_unfreeze、"
        "train_then_freeze），或只冻结一部分头（frozen_half、frozen_quarter）。",
    ),
    "next.classification.worse.longer": (
        "Train longer: the rest of the encoder has to make up for a fresh draw, so see whether the gap closes with "
        "more examples.",
        "延长训练：编码器的其余部分需要弥补重新初始化的 Q/K，看差距是否随样本增加而缩小。",
    ),
}

# ---- Studies side by side ------------------------------------------------------------------------------------------

_BESIDE: dict[str, Phrase] = {
    "heading.beside": ("Beside other studies", "与其他实验并列"),
    "heading.bert_and_gpt": ("BERT against GPT", "BERT 与 GPT 对比"),
    "column.source": ("source", "来源"),
    "column.model_and_task": ("model and task", "模型与任务"),
    "column.from_baseline": ("baseline → frozen", "基线 → 冻结"),
    "column.trainable_share": ("trainable share", "可训练比例"),
    "beside.table": (
        "Each study's main frozen arm against its own baseline: differences are paired over seeds, ratios are of step "
        "times by oelm bench, both with 95 % intervals.",
        "各实验的主要冻结组与其自身基线的对比：差异按种子配对，用时比由 oelm bench 测得，均附 95 % 区间。",
    ),
    "beside.source": ("{study}: {arm}", "{study}：{arm}"),
    "beside.gpt": ("GPT, {layers} layers of {width}; {data}", "GPT，{layers} 层，宽 {width}；{data}"),
    "beside.encoder": ("encoder, {layers} layers of {width}; {data}", "编码器，{layers} 层，宽 {width}；{data}"),
    "beside.accuracy": ("accuracy {baseline} → {frozen}", "准确率 {baseline} → {frozen}"),
    "beside.perplexity": ("perplexity {baseline} → {frozen}", "困惑度 {baseline} → {frozen}"),
    "beside.outcome": ("{name}: {outcome}", "{name}：{outcome}"),
    "beside.no_claim": ("not a hypothesis", "未作为假设"),
    "beside.problem": ("{study} is not shown: {problem}", "未能列出 {study}：{problem}"),
    "beside.documents": ("the documents, a claim", "文档中的主张"),
    "beside.documents_bert": ("BERT; XNLI", "BERT；XNLI"),
    "beside.documents_gpt": ("GPT, 6 layers of 512; TinyStories", "GPT，6 层，宽 512；TinyStories"),
    "beside.claimed_better": ("claimed better", "主张：更好"),
    "beside.claimed_worse": ("claimed worse", "主张：更差"),
    "beside.claimed_faster": ("claimed 57 % faster", "主张：快 57 %"),
    "beside.claimed_no_faster": ("claimed equal", "主张：相同"),
    "beside.audit_title": ("What an audit says of the documents' rows", "对文档两行的审核意见"),
    "beside.audit_bert": (
        "76.71 % → 77.79 %: one seed on 2,490 examples, where chance alone gives the difference a standard error of "
        "about 1.2 points; the arms had different learning rates (2e-5 and 1e-4) and kept different parts of the "
        "pretrained weights. It shows neither a gain nor a loss.",
        "76.71 % → 77.79 %：一个种子、2,490 个样本，仅偶然性就使差异的标准误约为 1.2 个百分点；两组的学习率不同"
        "（2e-5 与 1e-4），保留的预训练权重也不同。既不能证明提升，也不能证明下降。",
    ),
    "beside.audit_gpt": (
        "4.27 → 4.69: one seed, no interval, and learning rates that differ between the arms (3e-4 and 1e-3).",
        "4.27 → 4.69：一个种子，无区间，两组学习率不同（3e-4 与 1e-3）。",
    ),
    "beside.audit_faster": (
        "57 % faster on BERT: the two runs were made on different GPUs. Leaving out the weight gradients of queries "
        "and keys saves a few per cent of the arithmetic; a claim of more needs another cause.",
        "BERT 上快 57 %：两次运行使用了不同的 GPU。省去 Q/K 的权重梯度只节省百分之几的计算量；更大的加速需要别的原因。",
    ),
    "beside.audit_no_faster": (
        "No gain on GPT: 0.0837 and 0.0835 s a step, on different GPUs; 2.3 % of the arithmetic is what could be saved "
        "at that size.",
        "GPT 上无加速：每步 0.0837 秒与 0.0835 秒，GPU 也不同；该规模下可节省的计算量为 2.3 %。",
    ),
    "beside.caution": (
        "The rows may differ in size, data, measure and in whether weights were pretrained: the table describes these "
        "studies and tests nothing between them, nor classification against generation.",
        "各行的规模、数据、指标以及是否使用预训练权重可能不同：本表只描述这些实验，不检验它们之间的差别，也不检验“分类与生成”"
        "的差别。",
    ),
    "beside.documents_rows": (
        "The documents' rows are claims, quoted as they stand.",
        "文档的两行为原文主张，照录。",
    ),
}

CLASSIFICATION_WORDS: dict[str, Phrase] = {**_VERDICTS, **_TABLES, **_FIGURES, **_NEXT, **_BESIDE}
