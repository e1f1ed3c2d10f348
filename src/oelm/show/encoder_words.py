"""What a report says of fine-tuned encoders, of predictions compared example by example, and of studies side by side.

ENCODER_WORDS stand in place of the general phrases with the same code, and of all general next steps.
"""

from __future__ import annotations

from oelm.core.measures import Phrase

# ---- Predictions, example by example -------------------------------------------------------------------------------

_EXAMPLES: dict[str, Phrase] = {
    "verdicts.mcnemar": (
        " McNemar's tests of single pairs decide nothing.",
        "单对运行的 McNemar 检验不参与判定。",
    ),
    "box.mcnemar": ("McNemar's p", "McNemar p 值"),
    "box.mcnemar_value": ("by seed: {values}", "{values}"),
    "box.mcnemar_seed": ("{seed}: {p}", "种子 {seed}：{p}"),
    "column.both_right": ("both right", "都对"),
    "column.treatment_only": ("only treatment", "仅处理组对"),
    "column.control_only": ("only control", "仅对照组对"),
    "column.both_wrong": ("both wrong", "都错"),
    "column.p": ("p", "p 值"),
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
    "examples.table": (
        "How often the treatment and the control of the hypotheses are right on the same examples, by seed, with the "
        "exact two-sided McNemar test.",
        "各假设的处理组与对照组在相同样本上的对错，按种子列出，附精确双侧 McNemar 检验。",
    ),
    "examples.none": (
        "No pair of finished runs has predictions that can be compared.",
        "没有可供逐样本比较的成对预测。",
    ),
    "note.predictions_missing": (
        "{hypothesis}: not compared by example for seed {seeds}: a run of the pair stored no predictions.",
        "{hypothesis}：种子 {seeds} 未作逐样本比较，其中一次运行没有保存预测结果。",
    ),
    "note.predictions_unlike": (
        "{hypothesis}: not compared by example for seed {seeds}: the predictions of the pair are of different examples "
        "or in a different order.",
        "{hypothesis}：种子 {seeds} 未作逐样本比较，两次运行的预测不是同一批样本或顺序不同。",
    ),
}

# ---- Encoders ------------------------------------------------------------------------------------------------------

_ENCODERS: dict[str, Phrase] = {
    "step.baseline_to_frozen_pretrained": ("freezing what was pretrained", "冻结预训练的 Q/K"),
    "step.pretrained_to_orthogonalised": ("making it orthonormal per head", "按头正交化"),
    "step.orthogonalised_to_fresh": ("a fresh draw instead of the learnt directions", "以随机重抽取代预训练方向"),
    "provenance.encoder_sources": ("encoder", "编码器"),
    "provenance.encoder_digests": ("encoder's files (SHA-256)", "编码器文件摘要 (SHA-256)"),
    "column.training_examples": ("training examples", "训练样本数"),
    "axis.examples": ("training examples", "训练样本数"),
    "role.type_embedding": ("segment embedding", "句段嵌入"),
    "role.head": ("pooler and head", "池化与分类头"),
}

# ---- In place of the general words ---------------------------------------------------------------------------------

ENCODER_WORDS: dict[str, Phrase] = {
    "read": ("training examples", "训练样本数"),
    "step.baseline_to_frozen": (
        "all together: fresh, orthogonal per head, frozen",
        "三者合计：重新分头正交初始化并冻结",
    ),
    "axis.validation_loss": ("validation loss (nats per example)", "验证损失（nats / 样本）"),
    "axis.train_loss": ("training loss (nats per example)", "训练损失（nats / 样本）"),
    "axis.embeddings": ("emb., head", "嵌入与分类头"),
}

# ---- Studies side by side ------------------------------------------------------------------------------------------

_BESIDE: dict[str, Phrase] = {
    "heading.beside": ("Compared with other studies", "与其他实验并列"),
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
    "beside.gpt": ("GPT, {layers} layers of {width}; {scope}", "GPT，{layers} 层，宽 {width}；{scope}"),
    "beside.encoder": ("encoder, {layers} layers of {width}; {scope}", "编码器，{layers} 层，宽 {width}；{scope}"),
    "beside.quality": ("{quality} {baseline} → {frozen}", "{quality} {baseline} → {frozen}"),
    "beside.outcome": ("{name}: {outcome}", "{name}：{outcome}"),
    "beside.no_claim": ("not a hypothesis", "未作为假设"),
    "beside.problem": ("{study} is not shown: {problem}", "未能列出 {study}：{problem}"),
    "beside.caution": (
        "The rows may differ in size, data, measure and in whether weights were pretrained: the table describes these "
        "studies and tests nothing between them, nor classification against generation.",
        "各行的规模、数据、指标以及是否使用预训练权重可能不同：本表只描述这些实验，不检验它们之间的差别，也不检验“分类与生成”"
        "的差别。",
    ),
    "beside.reported": (
        "The last rows are claims reported elsewhere, quoted unchanged.",
        "末尾各行为他处报告的主张，照录。",
    ),
    "beside.remarks": ("Remarks on the reported claims", "对所引主张的说明"),
}

MORE_WORDS: dict[str, Phrase] = {**_EXAMPLES, **_ENCODERS, **_BESIDE}
