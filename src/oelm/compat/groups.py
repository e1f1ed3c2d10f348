"""The originals' three groups, with the GPUs and the port of each, and what their dry run prints.

The printed commands train each group once, by hand, as it was planned there. What the script starts is a study
(experiment.py), so that the note after them says what is different.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from oelm.compat.data_folders import TRAIN
from oelm.compat.training import OUTPUTS
from oelm.core.config import as_far_as_known
from oelm.study.declaration import Study
from oelm.study.one_run import settings_for

LINE = "=" * 70
TITLE = "Q/K矩阵冻结机制对比实验"
MODES = {"sequential": "顺序运行模式", "parallel": "并行运行模式"}
SCRIPT = "scripts/02-训练脚本/train.py"
NOTE = (
    "说明: 以上命令各训练一次，可单独执行；train.py 的 Q/K 以整个矩阵正交初始化。本脚本启动的是下列运行：Q/K 分头正交，"
    "各组使用相同的全局批量、学习率网格和随机种子，GPU 与端口取空闲者。",
    "note: each command above trains its group once, by hand; train.py starts Q/K from one orthogonal matrix for all "
    "heads. This script starts the runs below instead: Q/K orthogonal head by head, the same batch "
    "size, learning rates and seeds for all groups, on GPUs and ports that are free.",
)


@dataclass(frozen=True)
class Group:
    label: str
    model_type: str
    freeze_qk: bool | None  # None: the model has no such choice
    gpus: str
    port: int

    @property
    def processes(self) -> int:
        return len(self.gpus.split(","))


GROUPS = {
    "gpt_base": Group("Group A: GPT-Base", "gpt", None, "0,1", 29500),
    "oelm_no_freeze": Group("Group B: OELM-NoFreeze", "oelm", False, "2,3", 29501),
    "oelm_freeze": Group("Group C: OELM-Freeze", "oelm", True, "0,1,2,3", 29502),
}


def banner(names: list[str], mode: str) -> list[str]:
    return [LINE, TITLE, LINE, f"实验组: {', '.join(names)}", f"运行模式: {mode}", LINE, "", MODES[mode], LINE, ""]


def planned_lines(study: Study, names: list[str]) -> Iterator[str]:
    for name in names:
        if name in GROUPS:
            yield f"启动实验: {GROUPS[name].label}"
            yield f"命令: {command(study, name)}"
            yield f"GPU: {GROUPS[name].gpus}"
            yield f"输出目录: {OUTPUTS}/exp_{name}"
            yield "[DRY RUN] 不实际执行训练"
            yield ""
    yield from (LINE, *NOTE, "")


def command(study: Study, name: str) -> str:
    """One run of a group by train.py, with the study's sizes and its batch shared out among the group's processes."""
    group, run = GROUPS[name], as_far_as_known(settings_for(study, name, seed=study.seeds[0]).run)
    model, data = run.model, run.data
    freezing = [] if group.freeze_qk is None else ["--freeze_qk", str(group.freeze_qk).lower()]
    flags = {
        "d_model": model.d_model,
        "num_layers": model.num_layers,
        "num_heads": model.num_heads,
        "d_ff": model.d_ff,
        "seq_len": model.seq_len,
        "batch_size": max(1, run.training.batch_size // group.processes),
        "max_steps": run.training.steps,
        "data_path": data if data.endswith(TRAIN) else f"{data}/{TRAIN}",
        "out_dir": f"{OUTPUTS}/exp_{name}",
    }
    launcher = f"python -m torch.distributed.run --nproc_per_node {group.processes} --master_port {group.port}"
    words = ["--model_type", group.model_type, *freezing]
    words += [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]
    return f"{launcher} {SCRIPT} {shlex.join(words)}"
