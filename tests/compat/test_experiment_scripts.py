"""The originals' controller and analysis as printed there, with tiny sizes: groups, modes, output names."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oelm.execution.handles import LOCK_FILE
from oelm.storage.ownership import owning
from small_runs import REPOSITORY, child_environment, warm_script

LINE = "=" * 70
SIZES = ["--d_model", "32", "--num_layers", "2", "--num_heads", "4", "--seq_len", "16", "--max_steps", "4"]
SMALL = [*SIZES, "--batch_size", "4", "--seeds", "0", "--no-tuning", "--threads", "1"]


def script(folder, name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return warm_script(str(REPOSITORY / "scripts" / name), *arguments, cwd=folder)


@pytest.fixture(scope="module")
def experiment(token_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")
    (folder / "data").mkdir()
    (folder / "data" / "tiny_stories").symlink_to(token_folder)  # found in this spelling too
    done = script(folder, "experiment_qk_freeze.py", "--mode", "parallel", *SMALL)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_three_groups_leave_the_originals_files_and_given_again_nothing_is_started(experiment):
    for group in ("gpt_base", "oelm_no_freeze", "oelm_freeze"):
        run = experiment / "models" / "checkpoints" / f"exp_{group}"
        for name in ("training.log", "experiment_result.json", "timing_stats.json"):
            assert (run / name).is_file(), (group, name)
        timing = json.loads((run / "timing_stats.json").read_text())
        assert timing["model_type"] == ("gpt" if group == "gpt_base" else "oelm")
    summary = json.loads((experiment / "experiments" / "qk_freeze_summary.json").read_text())
    assert {group: runs[0]["state"] for group, runs in summary["groups"].items()} == {
        "gpt_base": "finished", "oelm_no_freeze": "finished", "oelm_freeze": "finished",
    }  # fmt: skip
    done = script(experiment, "experiment_qk_freeze.py", "--mode", "sequential", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "started" not in done.stdout


def test_the_analysis_writes_the_originals_tables(experiment):
    done = script(experiment, "analyze_freeze_experiment.py", "--output", "experiments/tables")
    assert done.returncode == 0, done.stderr
    tables = experiment / "experiments" / "tables"
    for name in ("comparison_table.txt", "hypothesis_validation.txt", "analysis_results.json"):
        assert (tables / name).stat().st_size > 100
    results = json.loads((tables / "analysis_results.json").read_text())
    outcomes = {verdict["hypothesis"]["name"]: verdict["outcome"] for verdict in results["verdicts"]}
    assert outcomes == {"H1": "supported", "H2": "undecided", "H3": "undecided", "H4": "undecided"}


def test_with_plot_the_analysis_draws_the_originals_figures(experiment):
    pytest.importorskip("matplotlib", reason="pip install 'oelm[report]'")
    done = script(experiment, "analyze_freeze_experiment.py", "--plot")
    assert done.returncode == 0, done.stderr
    for name in ("val_ppl_comparison.png", "parameter_distribution.png", "report.en.pdf"):
        assert (experiment / "experiments" / "analysis" / name).stat().st_size > 1000


def test_a_dry_run_of_some_groups_starts_nothing(token_folder, tmp_path):
    given = ["--groups", "gpt_base,oelm_freeze", "--dry-run", "--data_path", token_folder]
    done = script(tmp_path, "experiment_qk_freeze.py", *SMALL, *given)
    assert done.returncode == 0, done.stderr
    assert "oelm_no_freeze s0" not in done.stdout
    assert "oelm_freeze s0 (missing)" in done.stdout
    lines = done.stdout.splitlines()
    assert lines[:6] == [
        LINE, "Q/K矩阵冻结机制对比实验", LINE, "实验组: gpt_base, oelm_freeze", "运行模式: sequential", LINE,
    ]  # fmt: skip
    assert [line for line in lines if line.startswith(("启动实验", "GPU", "输出目录"))] == [
        "启动实验: Group A: GPT-Base", "GPU: 0,1", "输出目录: models/checkpoints/exp_gpt_base",
        "启动实验: Group C: OELM-Freeze", "GPU: 0,1,2,3", "输出目录: models/checkpoints/exp_oelm_freeze",
    ]  # fmt: skip
    commands = [line for line in lines if line.startswith("命令: ")]
    assert "torch.distributed.run --nproc_per_node 2 --master_port 29500 scripts/02-训练脚本/train.py" in commands[0]
    assert "--nproc_per_node 4 --master_port 29502" in commands[1]
    assert "--model_type oelm --freeze_qk true --d_model 32" in commands[1]
    assert lines.count("[DRY RUN] 不实际执行训练") == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--groups", "gpt_bas"], "--groups: 'gpt_bas' is not one of gpt_base, oelm_no_freeze, oelm_freeze"),
        (["--seeds", "one"], "--seeds one: write whole numbers separated by commas"),
        (["--mode", "fast"], "argument --mode: invalid choice: 'fast'"),
        ([], "; create it with: oelm prepare tinystories --out data/tinystories\n"),
    ],
)
def test_wrong_words_are_one_line(tmp_path, arguments, expected):
    done = script(tmp_path, "experiment_qk_freeze.py", *arguments)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_an_analysis_without_runs_names_the_originals_command(tmp_path):
    done = script(tmp_path, "analyze_freeze_experiment.py")
    assert done.returncode == 2
    assert "no runs there yet; start them with: python scripts/experiment_qk_freeze.py" in done.stderr


# ---- A start that fails leaves everything as it was ------------------------------------------------------------------


@pytest.fixture
def finished_experiment(experiment, tmp_path):
    """A copy that a test may spoil, as a project of its own."""
    folder = Path(shutil.copytree(experiment, tmp_path / "project", symlinks=True))
    name = "scripts/experiment_qk_freeze.py"
    (folder / name).parent.mkdir()
    shutil.copy(REPOSITORY / name, folder / name)
    for words in (["init", "-q"], ["add", "scripts"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def stored(folder) -> dict[str, bytes]:
    links = {str(link): os.readlink(link).encode() for link in (folder / "models" / "checkpoints").glob("exp_*")
             if link.is_symlink()}  # fmt: skip
    return links | {str(file): file.read_bytes() for file in (folder / "experiments").glob("qk_freeze*")}


def started(folder, *arguments: object) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, "scripts/experiment_qk_freeze.py"]
    words = [*script, *SIZES, *["--batch_size", "4", "--threads", "1"], *arguments]
    return subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.skipif(
    shutil.which("ssh") is None or shutil.which("rsync") is None, reason="apt-get install openssh-client rsync"
)
@pytest.mark.parametrize(
    "arguments", [("--remote", "--host", "nowhere.invalid"), ("--data_path", "nowhere")], ids=["no host", "no data"]
)
def test_a_start_that_fails_leaves_the_study_of_finished_runs(finished_experiment, arguments):
    before = stored(finished_experiment)
    assert any(name.endswith("qk_freeze.yaml") for name in before)
    done = started(finished_experiment, "--no-tuning", "--seeds", "0,1,2,3,4,5,6,7", *arguments)
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) >= 1
    assert "Traceback" not in done.stderr
    assert stored(finished_experiment) == before


def test_a_study_that_another_controller_works_on_keeps_its_declaration(finished_experiment):
    before = stored(finished_experiment)
    with owning(finished_experiment / "models" / "checkpoints" / "qk_freeze" / LOCK_FILE):
        done = started(finished_experiment, "--no-tuning", "--seeds", "0,1")
    assert "a controller is already running this study" in done.stderr
    assert stored(finished_experiment) == before


def test_an_older_runs_folder_among_the_links_is_refused(finished_experiment):
    place = finished_experiment / "models" / "checkpoints" / "exp_oelm_freeze"
    place.unlink()
    place.mkdir()
    (place / "training.log").write_text("an older run")
    before = stored(finished_experiment)
    done = started(finished_experiment, "--no-tuning", "--seeds", "0,1")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "models/checkpoints/exp_oelm_freeze: is the folder of an older run" in line
    assert "mv models/checkpoints/exp_oelm_freeze models/checkpoints/exp_oelm_freeze_before" in line
    assert stored(finished_experiment) == before
    assert (place / "training.log").read_text() == "an older run"
    assert "started" not in done.stdout
