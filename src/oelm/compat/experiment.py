"""`experiment_qk_freeze.py` and `analyze_freeze_experiment.py`: the originals' controller and analysis over a study.

The study is qk_freeze, handed in by the script; flags make it smaller. What was run is stored beside the
summary, so that the analysis reads the same study without being told again.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from oelm.compat.data_folders import TRAIN, found_data
from oelm.compat.flags import SIZES, TRAINING, Parser, add_flags, as_a_script
from oelm.compat.training import OUTPUTS, write_timing
from oelm.core.config import as_far_as_known
from oelm.core.settings import read_yaml
from oelm.machine.answers import say
from oelm.machine.errors import UserError
from oelm.storage.files import write_bytes, write_json
from oelm.storage.ownership import now
from oelm.study.declaration import NO_LOOKS, Study, study_digest
from oelm.study.one_run import settings_for
from oelm.study.plan import Plan
from oelm.study.reading import load_study, study_of
from oelm.study.registration import as_it_began

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


SUMMARY = Path("experiments/qk_freeze_summary.json")
STUDY = Path("experiments/qk_freeze.yaml")
RUNS = OUTPUTS / "qk_freeze"
ANALYSIS = Path("experiments/analysis")
FIRST_FIGURES = ("val_ppl_comparison", "parameter_distribution")  # which the originals put beside the tables


def experiment(declared: Path) -> None:
    """The script experiment_qk_freeze.py, over the study declared in a file."""
    with as_a_script():
        options = _parser().parse_args()
        if options.remote:
            _experiment_there(options, declared)
        elif options.host or options.user:
            raise UserError("--host and --user need --remote")
        else:
            _experiment(options, declared)


def analysis(declared: Path) -> None:
    """The script analyze_freeze_experiment.py; the declared study counts where none was run yet."""
    with as_a_script():
        options = _analysis_parser().parse_args()
        from oelm.analysis.summary import findings_of
        from oelm.show.report import write_report, write_tables
        from oelm.study.shelf import Shelf

        study = load_study(options.study or (STUDY if STUDY.is_file() else declared))
        study = as_it_began(study, Path(options.runs))
        shelf = Shelf(Path(options.runs))
        if not shelf.runs:
            raise UserError(
                f"{options.runs}: no runs there yet; start them with: python scripts/experiment_qk_freeze.py"
            )
        findings = findings_of(study, shelf)
        out = Path(options.output)
        files = write_report(findings, out) if options.plot else write_tables(findings, out)
        for name in FIRST_FIGURES:
            if (figure := files.figures.get(f"{name}.en.png")) is not None:
                write_bytes(out / f"{name}.png", figure.read_bytes())
        for name in ("comparison_table.txt", "hypothesis_validation.txt"):
            say(files.tables[name].read_text(encoding="utf-8"))
        for line in [*files.remarks, *files.tables.values(), *files.articles.values()]:
            say(line)


# ---- Flags ---------------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        description="Run the groups gpt_base, oelm_no_freeze and oelm_freeze as one study; Q/K of the two oelm groups "
        "are orthogonal head by head, not over the whole matrix as in train.py."
    )
    parser.add_argument(
        "--mode",
        choices=("sequential", "parallel"),
        default="sequential",
        help="One run at a time, or one per slot.",
    )
    parser.add_argument("--groups", metavar="A,B", help="Only these groups (all three).")
    parser.add_argument("--dry-run", action="store_true", help="Show what would be started, and start nothing.")
    parser.add_argument("--processes", type=int, metavar="N", default=1, help="Processes (GPUs) per run (1).")
    parser.add_argument("--seeds", metavar="0,1,2", help="Seeds of every group (0 to 7).")
    parser.add_argument(
        "--no-tuning", action="store_true", help="One learning rate for all, --max_lr, instead of a grid."
    )
    parser.add_argument("--data_path", metavar="PATH", help="Token files (data/tinystories, or data/tiny_stories).")
    add_flags(parser, SIZES | TRAINING)
    parser.add_argument("--batch_size", type=int, metavar="N", help="Sequences per update, over all processes (16).")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads per run.")
    parser.add_argument("--runs", metavar="DIR", default=str(RUNS), help=f"Folder of the runs ({RUNS}).")
    _add_place(parser)
    return parser


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--remote", action="store_true", help="Send code and data to a server and start the runs there."
    )
    parser.add_argument(
        "--host", metavar="H", help="Server: a host in ~/.ssh/config or a name in remotes.yaml (default)."
    )
    parser.add_argument("--user", metavar="U", help="Your user name on the server, if not in ~/.ssh/config.")


def _analysis_parser() -> argparse.ArgumentParser:
    parser = Parser(description="Compare the groups: tables, hypotheses and, with --plot, figures and a report.")
    parser.add_argument("--plot", action="store_true", help="Draw the figures and write the report too.")
    parser.add_argument("--output", metavar="DIR", default=str(ANALYSIS), help=f"Folder for the files ({ANALYSIS}).")
    parser.add_argument("--study", metavar="FILE", help=f"The study ({STUDY}, written by experiment_qk_freeze.py).")
    parser.add_argument("--runs", metavar="DIR", default=str(RUNS), help=f"Folder of the runs ({RUNS}).")
    return parser


# ---- The study -----------------------------------------------------------------------------------------------------


def study_tree(declared: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The declared study with what the flags change; a smaller model is a smaller hypothesis about its parameters."""
    every_seed = {"name": declared.stem, "looks": NO_LOOKS}  # as the original experiments did
    base: dict[str, Any] = every_seed | read_yaml(declared.read_text(encoding="utf-8"), name=str(declared))
    given = {key: getattr(options, name) for name, (key, _, _) in (SIZES | TRAINING).items()}
    given |= {
        "training.batch_size": options.batch_size,
        "execution.threads": options.threads,
        "data": options.data_path or found_data(base["base"]["data"]),
    }
    changed = {key: value for key, value in given.items() if value is not None}
    for key, value in changed.items():
        *sections, last = key.split(".")
        tree = base["base"]
        for section in sections:
            tree = tree.setdefault(section, {})
        tree[last] = value
    if any(key.startswith("model.") for key in changed):
        # d_ff follows d_model, the vocabulary the data, and H1 asks for every query and key of that size.
        model = base["base"].setdefault("model", {})
        model.setdefault("d_ff", None)
        model["vocabulary"] = None
        width, layers = changed.get("model.d_model", 512), changed.get("model.num_layers", 6)
        first = base["hypotheses"][0]
        first["least_frozen"] = 2 * layers * width * width
        first["claim"] = f"{first['least_frozen']:,} parameters never train."
    if options.seeds:
        try:
            base["seeds"] = [int(part) for part in options.seeds.split(",")]
        except ValueError as error:
            raise UserError(
                f"--seeds {options.seeds}: write whole numbers separated by commas, for example 0,1,2"
            ) from error
    if options.no_tuning:
        del base["tuning"]
    elif "training.steps" in changed:
        base["tuning"]["set"]["training.steps"] = max(1, changed["training.steps"] // 10)
    return base


# ---- Running -------------------------------------------------------------------------------------------------------


def _experiment(options: argparse.Namespace, declared: Path) -> None:
    from oelm.execution.controller import Controller, dry_run, leaving_on_terminate
    from oelm.execution.engine import Given
    from oelm.execution.local import LocalEngine
    from oelm.execution.progress import counted
    from oelm.execution.table import watching
    from oelm.study.declaration import with_processes

    tree = study_tree(declared, options)
    study = with_processes(study_of(tree, name=declared.name), options.processes)
    groups = _groups(options.groups, study)
    _refuse_folders_in_place_of_links(study)
    folder = Path(options.runs)
    given = Given(slots=options.processes if options.mode == "sequential" else None)
    slots = LocalEngine(folder).slots(study, given, say=say)
    say("\n".join(banner(groups or list(study.arms), options.mode)))
    if options.dry_run:
        say("\n".join(planned_lines(study, groups or list(study.arms))))
        say("\n".join(dry_run(study, slots, arms=groups)))
        return
    with watching(units=slots.at_a_time) as view, leaving_on_terminate():
        controller = Controller(study, slots, view, groups)
        plan = controller.go(begun=lambda: _store_study(tree))
    _link_first_seeds(plan)
    for group, runs in plan.by_arm.items():
        for run in runs:
            if run.stored and run.stored.result and group in GROUPS and not run.stored.directory.timing_file.exists():
                model_type = GROUPS[group].model_type
                write_timing(run.stored.directory, run.run, run.stored.result, model_type=model_type)
    write_json(SUMMARY, summary(plan, folder))
    say(f"{study.name}: {counted(plan)}")
    say(f"{SUMMARY}\nnext: {shlex.join(['python', 'scripts/analyze_freeze_experiment.py', '--plot'])}")
    if controller.given_up:
        raise UserError("\n".join(controller.given_up.values()))


def _experiment_there(options: argparse.Namespace, declared: Path) -> None:
    """The same script with the same flags on a server, detached; what it would run is checked here first."""
    from oelm.execution.remote.hosts import server_named
    from oelm.execution.remote.project import project_root
    from oelm.execution.remote.verbs import (
        StudyPlace,
        data_folders,
        data_here,
        data_of,
        inside,
        inside_project,
        start,
        sync,
    )

    if options.dry_run:
        raise UserError("--dry-run: starts nothing, so it works here; leave out --remote")
    tree = study_tree(declared, options)
    study = study_of(tree, name=declared.name)
    _groups(options.groups, study)
    server = server_named("@".join(filter(None, (options.user, options.host or "default"))))
    place = StudyPlace(str(STUDY), inside(Path(options.runs)), data_of(study))
    script = inside_project(sys.argv[0], project_root(), what="script")
    places = Parser(add_help=False, allow_abbrev=False)
    _add_place(places)
    _, flags = places.parse_known_args()
    sync(server, data_folders(data_here(place, say=say)), say=say)
    ended = start(server, [script, *flags], place, say=say)
    if ended.code:
        own = f"{Path(script).name}: "  # which comes before every error of this one too
        lines = [line.removeprefix(own) for line in ended.errors]
        raise UserError("\n".join(lines) or f"{server.name}: ended with code {ended.code}")
    _store_study(tree)


def _store_study(tree: dict[str, Any]) -> None:
    """What the analysis reads; only when its runs have been started, so that a failed start leaves the last one."""
    STUDY.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(STUDY, yaml.safe_dump(tree, allow_unicode=True, sort_keys=False).encode())


def _groups(text: str | None, study: Study) -> list[str] | None:
    names = [part.strip() for part in text.split(",")] if text else None
    for name in names or ():
        if name not in study.arms:
            raise UserError(f"--groups: {name!r} is not one of {', '.join(study.arms)}")
    return names


def _refuse_folders_in_place_of_links(study: Study) -> None:
    """An older run's own folder would stay among links to this study's runs, and be read as one of them."""
    for link in map(_link_of, study.arms):
        if link.exists() and not link.is_symlink():
            aside = shlex.join(["mv", str(link), f"{link}_before"])
            raise UserError(
                f"{link}: is the folder of an older run, but this study needs the name for a link to the "
                f"first seed of its group; move it away ({aside}) and run the same command again"
            )


def _link_of(group: str) -> Path:
    return OUTPUTS / f"exp_{group}"


def _link_first_seeds(plan: Plan) -> None:
    """models/checkpoints/exp_<group>, where the originals look: the group's first seed."""
    OUTPUTS.mkdir(parents=True, exist_ok=True)
    _refuse_folders_in_place_of_links(plan.study)  # made since the start
    for group, runs in plan.by_arm.items():
        target = next((run.stored.directory.path for run in runs if run.stored), None)
        if target is not None:
            _link_of(group).unlink(missing_ok=True)
            _link_of(group).symlink_to(os.path.relpath(target, OUTPUTS))


def summary(plan: Plan, folder: Path) -> dict[str, Any]:
    """What every group's runs came to."""
    groups = dict[str, list[dict[str, Any]]]()
    for group, runs in plan.by_arm.items():
        groups[group] = []
        for run in runs:
            path = str(run.stored.directory.path) if run.stored else None
            found = (run.stored.result if run.stored else None) or {}
            numbers = {key: found.get(key) for key in ("val_loss", "perplexity")}
            groups[group].append({"seed": run.seed, "state": run.state, "path": path, **numbers})
    chosen = {arm: choice.values for arm, choice in plan.choices.items()}
    return {
        "study": plan.study.name,
        "study_digest": study_digest(plan.study),
        "created": now(),
        "runs": str(folder),
        "chosen": chosen,
        "groups": groups,
    }
