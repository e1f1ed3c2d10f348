"""The documents' controller and analysis as printed there, with tiny sizes: groups, modes, output names."""

import json
import subprocess
import sys

import pytest

from small_runs import REPOSITORY, child_environment

SIZES = ["--d_model", "32", "--num_layers", "2", "--num_heads", "4", "--seq_len", "16", "--max_steps", "4"]
SMALL = [*SIZES, "--batch_size", "4", "--seeds", "0", "--no-tuning", "--threads", "1"]


def script(folder, name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / "scripts" / name), *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, env=child_environment(), capture_output=True, text=True, timeout=300, check=False
    )


@pytest.fixture(scope="module")
def experiment(token_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("experiment")
    (folder / "data").mkdir()
    (folder / "data" / "tinystories").symlink_to(token_folder)
    done = script(folder, "experiment_qk_freeze.py", "--mode", "parallel", *SMALL)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_three_groups_leave_the_documents_files(experiment):
    for group in ("gpt_base", "oelm_no_freeze", "oelm_freeze"):
        run = experiment / "models" / "checkpoints" / f"exp_{group}"
        for name in ("training.log", "experiment_result.json", "timing_stats.json"):
            assert (run / name).is_file(), (group, name)
    summary = json.loads((experiment / "experiments" / "qk_freeze_summary.json").read_text())
    assert {group: runs[0]["state"] for group, runs in summary["groups"].items()} == {
        "gpt_base": "finished", "oelm_no_freeze": "finished", "oelm_freeze": "finished",
    }  # fmt: skip


def test_given_again_nothing_is_started(experiment):
    done = script(experiment, "experiment_qk_freeze.py", "--mode", "sequential", *SMALL)
    assert done.returncode == 0, done.stderr
    assert "started" not in done.stdout


def test_the_analysis_writes_the_documents_tables(experiment):
    done = script(experiment, "analyze_freeze_experiment.py", "--output", "experiments/tables")
    assert done.returncode == 0, done.stderr
    tables = experiment / "experiments" / "tables"
    for name in ("comparison_table.txt", "hypothesis_validation.txt", "analysis_results.json"):
        assert (tables / name).stat().st_size > 100
    results = json.loads((tables / "analysis_results.json").read_text())
    outcomes = {verdict["hypothesis"]["name"]: verdict["outcome"] for verdict in results["verdicts"]}
    assert outcomes == {"H1": "supported", "H2": "undecided", "H3": "undecided", "H4": "undecided"}


def test_with_plot_the_analysis_draws_the_documents_figures(experiment):
    pytest.importorskip("matplotlib", reason="needs oelm[report]")
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
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--groups", "gpt_bas"], "--groups: 'gpt_bas' is not one of gpt_base, oelm_no_freeze, oelm_freeze"),
        (["--seeds", "one"], "--seeds one: write whole numbers separated by commas"),
        (["--num_heads", "3"], "d_model 512 is not divisible by num_heads 3"),
        (["--mode", "fast"], "argument --mode: invalid choice: 'fast'"),
        ([], "no prepared data there; make it with: oelm prepare tinystories"),
    ],
)
def test_wrong_words_are_one_line(tmp_path, arguments, expected):
    done = script(tmp_path, "experiment_qk_freeze.py", *arguments)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_an_analysis_without_runs_names_the_documents_command(tmp_path):
    done = script(tmp_path, "analyze_freeze_experiment.py")
    assert done.returncode == 2
    assert "no runs there yet; start them with: python scripts/experiment_qk_freeze.py" in done.stderr
