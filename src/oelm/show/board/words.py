"""What the page says, in both languages, by code. What a report says already keeps its words (show/words.py)."""

from __future__ import annotations

from oelm.core.measures import Phrase
from oelm.models.heads.kinds import KINDS as HEAD_KINDS
from oelm.show.words import in_words, say
from oelm.study.declaration import Language

_OWN: dict[str, Phrase] = {
    "title": ("oelm board", "oelm 实验面板"),
    "skip": ("Skip to the content", "跳到正文"),
    "overview": ("Overview", "总览"),
    "language.code": ("en", "zh"),
    "language": ("中文", "English"),
    "language.name": ("Show this page in Chinese", "以英文显示本页"),
    "theme.light": ("Light", "浅色"),
    "theme.dark": ("Dark", "深色"),
    "theme.system": ("System", "跟随系统"),
    "theme.name": ("Colours", "配色"),
    "live": ("live", "实时"),
    "live.still": ("archive: does not change", "归档：不会变化"),
    "live.lost": ("connection lost, trying again", "连接中断，正在重试"),
    "loading": ("Reading…", "正在读取……"),
    "computing": ("Checking the runs and computing the verdicts…", "正在核对运行并计算结论……"),
    "not_found": ("There is no such study or run here.", "此处没有这个实验或运行。"),
    "failed": ("The page could not be read from the server: {reason}", "无法从服务器读取本页：{reason}"),
    "studies": ("Studies", "实验"),
    "single_runs": ("Single runs", "单次运行"),
    "nothing": (
        "No runs in {folder} yet. Start some with: oelm run demo",
        "{folder} 中还没有运行。可用以下命令启动：oelm run demo",
    ),
    "left_out": ("Not shown", "未显示"),
    "unreadable": ("Could not be read", "无法读取"),
    "column.study": ("study", "实验"),
    "column.run": ("run", "运行"),
    "column.states": ("states", "状态"),
    "column.progress": ("progress", "进度"),
    "column.eta": ("time left", "剩余时间"),
    "column.changed": ("last change", "最近更新"),
    "column.failures": ("failures", "失败"),
    "column.step": ("step", "步"),
    "column.val_loss": ("validation loss", "验证损失"),
    "column.perplexity": ("perplexity", "困惑度"),
    "column.accuracy": ("accuracy", "准确率"),
    "column.size": ("size", "大小"),
    "column.least": ("smallest", "最小"),
    "column.most": ("largest", "最大"),
    "column.choose": ("compare", "对比"),
    "question": ("Question", "问题"),
    "hypotheses": ("Hypotheses", "假设"),
    "no_hypotheses": ("This study states no hypotheses.", "本实验没有声明假设。"),
    "no_verdicts": ("There are no verdicts: {reason}", "没有结论：{reason}"),
    "complete": ("complete", "已完成"),
    "incomplete": ("not complete", "尚未完成"),
    "card.incomplete": (
        "Not complete: {done} of {planned} runs of these arms have ended. The verdict may still change.",
        "尚未完成：这些实验组的 {planned} 次运行中已有 {done} 次结束，结论仍可能改变。",
    ),
    "card.study_incomplete": (
        "The study is not complete. All runs of this claim have ended; correction for several claims may still change.",
        "实验尚未完成。该假设的运行均已结束；多重检验校正仍可能改变。",
    ),
    "card.study_incomplete.settled": (
        "The study is not complete. This verdict does not change any more.",
        "实验尚未完成。该结论不会再改变。",
    ),
    "card.nothing_yet": ("Not complete: no run has begun.", "尚未完成：还没有运行启动。"),
    "card.no_bench": (
        "Not complete: the step times have not been measured (oelm bench).",
        "尚未完成：还没有测量每步用时（oelm bench）。",
    ),
    "card.numbers": ("Numbers", "数值"),
    "card.drawn": (
        "Mean {mean}, interval {low} to {high}; the claim holds {region}.",
        "均值 {mean}，区间 {low} 至 {high}；假设在{region}时成立。",
    ),
    "card.region.below": ("below {to}", "小于 {to} "),
    "card.region.above": ("from {from}", "不小于 {from} "),
    "card.region.between": ("from {from} to {to}", "介于 {from} 与 {to} 之间"),
    "card.no_interval": ("(no interval yet)", "（尚无区间）"),
    "registration": ("Registration", "登记"),
    "next_look": ("Next look", "下一次检视"),
    "report.en": ("Report (English)", "报告（英文）"),
    "report.zh": ("Report (Chinese)", "报告（中文）"),
    "report.other": (
        "of other results than those shown here: write it again with oelm report",
        "与此处显示的结果不同：请用 oelm report 重新生成",
    ),
    "curves": ("Curves", "曲线"),
    "curves.size": ("Size {size}; the runs at the others are in the table. ", "规模 {size}；其他规模的运行见表格。"),
    "curves.none": ("No records yet.", "还没有记录。"),
    "curves.note": (
        "Line: mean over seeds. Band: from the smallest to the largest. "
        "Faint where some seeds have not got this far yet.",
        "线：各种子的均值。色带：从最小到最大。颜色较淡处：部分种子尚未运行到此。",
    ),
    "curves.note_apart": (
        "Each line is one seed, drawn as its arm.",
        "每条线是一个种子，样式与其实验组相同。",
    ),
    "choose.value": ("value", "数值"),
    "choose.against": ("against", "横轴"),
    "choose.log_x": ("logarithmic x", "横轴取对数"),
    "choose.log_y": ("logarithmic y", "纵轴取对数"),
    "choose.smoothing": ("smoothing", "平滑"),
    "choose.smoothing.off": ("off", "关闭"),
    "choose.smoothing.on": ("mean of {points} points", "{points} 点均值"),
    "choose.seeds": ("seeds apart", "分种子显示"),
    "value.val_loss": ("validation loss", "验证损失"),
    "value.train_loss": ("training loss", "训练损失"),
    "value.accuracy": ("accuracy", "准确率"),
    "against.steps": ("steps", "步数"),
    "against.tokens": ("tokens", "token 数"),
    "against.seconds": ("time", "时间"),
    "against.flops": ("FLOPs", "FLOPs"),
    "axis.time": ("training time (s)", "训练时间（秒）"),
    "axis.flop": ("training FLOPs", "训练计算量（FLOPs）"),
    "axis.accuracy": ("validation accuracy", "验证准确率"),
    "arms": ("Arms", "实验组"),
    "arms.note": ("Select an arm to hide or show it.", "点击实验组可隐藏或显示。"),
    "hover.seeds": ("{count} of {of} seeds", "{of} 个种子中的 {count} 个"),
    "tuning": ("Tuning", "调优"),
    "tuning.note": (
        "Loss on the tuning split against each value of the grid; a ring marks the chosen value, "
        "which may lie between those that were tried.",
        "调优集损失与网格取值；圆圈为选定的取值，可能介于试过的取值之间。",
    ),
    "tuning.chosen": ("chosen", "选定"),
    "runs": ("Runs", "运行"),
    "runs.note": (
        "The loss of a finished run is that of its final validation, over more data than the points of its curve.",
        "已完成运行的损失来自最终验证，所用数据多于曲线上的各点。",
    ),
    "runs.filter": ("Filter runs", "筛选运行"),
    "runs.shown.one": ("{shown} of {all} run", "{all} 次运行中的 {shown} 次"),
    "runs.shown": ("{shown} of {all} runs", "{all} 次运行中的 {shown} 次"),
    "runs.compare": ("Compare {count} chosen runs", "对比选中的 {count} 次运行"),
    "runs.choose_none": ("Choose none", "取消全部选择"),
    "runs.choose": ("Choose {run} for a comparison", "选择 {run} 参与对比"),
    "confounds": ("Confounds", "混杂因素"),
    "heads": ("Attention heads", "注意力头"),
    "heads.note": (
        "Share of attention: means over seeds at the last validation, heads of a layer sorted by their score.",
        "注意力比例：最后一次验证时各种子的均值，每层的头按得分排序。",
    ),
    "heads.note_run": ("Share of attention at the last validation.", "最后一次验证时的注意力比例。"),
    "run": ("Run", "运行"),
    "run.of": ("Study", "所属实验"),
    "details": ("Details", "详情"),
    "config": ("Config", "配置"),
    "environment": ("Environment", "环境"),
    "result": ("Result", "结果"),
    "counts": ("Parameters", "参数"),
    "counts.role": ("part", "部分"),
    "counts.by_role": ("By part", "各部分"),
    "counts.layer": ("layer", "层"),
    "counts.total": ("total", "总数"),
    "counts.trainable": ("trainable", "可训练"),
    "counts.frozen": ("frozen", "冻结"),
    "counts.implied": ("implied, stored nowhere", "隐含（不存储）"),
    "log": ("End of the log", "日志末尾"),
    "log.none": ("No log here.", "此处没有日志。"),
    "checkpoints": ("Checkpoints", "检查点"),
    "checkpoints.none": ("No checkpoints here.", "此处没有检查点。"),
    "sample": ("Generated text", "生成的文本"),
    "sample.none": (
        "None is stored. To store one: oelm generate RUN --keep",
        "没有存储。可用 oelm generate RUN --keep 存储。",
    ),
    "sample.settings": (
        "{of}, temperature {temperature}, top-k {top_k}, seed {seed}",
        "{of}，温度 {temperature}，top-k {top_k}，随机种子 {seed}",
    ),
    "compare": ("Compare", "对比"),
    "compare.differences": ("What differs", "差异项"),
    "compare.same": (
        "Nothing differs between the configs and environments of these runs.",
        "这些运行的配置与环境没有差异。",
    ),
    "compare.gone": ("Not here: {runs}", "此处没有：{runs}"),
    "compare.most": ("At most {most} runs are compared at once.", "最多同时对比 {most} 次运行。"),
    "compare.few": (
        "Choose two or more runs to compare, of one study or of several.",
        "请选择两次或更多运行进行对比，可来自不同实验。",
    ),
    "state.unchecked": ("being checked", "正在核对"),
    "key": ("key", "键"),
    "value": ("value", "值"),
    "all": ("all", "全部"),
    "colon": (": ", "："),
    "in_brackets": (" ({text})", "（{text}）"),
    "unit.seconds": ("s", "秒"),
    "unit.minutes": ("min", "分"),
    "unit.hours": ("h", "小时"),
}
# Of a report's words, those that the page says too.
_SHARED = (
    *(f"state.{name}" for name in (
        "missing", "waiting", "not_needed", "queued", "running", "interrupted", "damaged", "finished", "failed",
        "diverged",
    )),
    "stage.final", "stage.tuning", "column.arm", "column.seed", "column.state", "column.stage", "column.error",
    "axis.steps", "axis.tokens", "axis.validation_loss", "axis.train_loss", "axis.tuning_loss", "axis.learning_rate",
    "axis.head", "axis.ranked_head", "axis.layer", "axis.share_of_attention",
    *(f"head.{kind}" for kind in HEAD_KINDS),
)  # fmt: skip


def say_on_page(language: Language, code: str, /, **facts: object) -> str:
    return in_words(_OWN[code], language).format(**facts)


def page_words(language: Language) -> dict[str, str]:
    """Everything the page's own code says; what is in braces it fills in."""
    own = {code: in_words(phrase, language) for code, phrase in _OWN.items()}
    return {code: say(language, code) for code in _SHARED} | own
