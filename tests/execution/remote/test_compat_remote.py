"""The originals' remote commands as they are printed: ./mlda-run.sh and experiment_qk_freeze.py --remote."""

import getpass
import shutil
import subprocess
import sys

import pytest
from loopback import HOST, World, git_add, needs_a_server, results

from small_runs import PATIENCE, REPOSITORY, child_environment, eventually

SMALL = ["--d_model", "32", "--num_layers", "2", "--num_heads", "4", "--seq_len", "16", "--max_steps", "4"]
ONE_RUN = [*SMALL, "--batch_size", "4", "--seeds", "0", "--no-tuning", "--threads", "1", "--groups", "gpt_base"]


def command(world: World, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, words)),
        cwd=world.project,
        env=world.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture(scope="module")
def originals(shared_world) -> World:
    script = shared_world.project / "scripts" / "experiment_qk_freeze.py"
    script.parent.mkdir(exist_ok=True)
    shutil.copy(REPOSITORY / "scripts" / script.name, script)
    with open(shared_world.project / ".gitignore", "a") as ignored:
        ignored.write("/experiments/\n/models/\n")
    git_add(shared_world.project)
    return shared_world


@needs_a_server
def test_the_controller_script_starts_over_there_and_its_results_are_read_here(originals):
    place = ["--remote", "--host", HOST, "--user", getpass.getuser()]
    script = [sys.executable, "scripts/experiment_qk_freeze.py"]
    done = command(originals, *script, *place, *ONE_RUN, "--data_path", "data/tokens")
    assert done.returncode == 0, done.stderr
    runs = "models/checkpoints/qk_freeze"
    eventually(lambda: len(results(originals.there / runs)) == 1, what="the run")
    eventually((originals.there / "experiments" / "qk_freeze_summary.json").exists, what="its summary")
    pulling = next(line for line in done.stdout.splitlines() if " pull " in line).removeprefix("next: oelm ").split()
    code, out = originals.oelm(*pulling)
    assert code == 0, out
    here, there = (results(folder / runs) for folder in (originals.project, originals.there))
    assert here == there
    code, out = originals.oelm("status", "experiments/qk_freeze.yaml", "--runs", runs)
    assert "gpt_base s0        finished" in out, out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--host", "lab"], "--host and --user need --remote"),
        (["--remote"], "host default: remotes.yaml has no entry of that name"),
        (["--remote", "--host=-oProxyCommand=touch canary"], "letters, digits"),
        (["--remote", "--host", "lab", "--user", "me;touch canary"], "letters, digits"),
        (["--remote", "--host", "lab", "--dry-run"], "leave out --remote"),
    ],
)
def test_wrong_words_are_one_line(tmp_path, words, expected):
    script = REPOSITORY / "scripts" / "experiment_qk_freeze.py"
    done = subprocess.run(
        [sys.executable, str(script), *words],
        cwd=tmp_path,
        env=child_environment(HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "canary").exists()


def test_the_shell_file_without_a_verb_or_a_host_says_what_to_do(tmp_path):
    shutil.copy(REPOSITORY / "mlda-run.sh", tmp_path)
    environment = {"PATH": "/usr/bin:/bin", "OELM_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY / "src")}
    for words, expected in (([], "usage: ./mlda-run.sh"), (["logs"], "remotes.yaml has no entry of that name")):
        done = subprocess.run(
            ["./mlda-run.sh", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert expected in done.stderr
