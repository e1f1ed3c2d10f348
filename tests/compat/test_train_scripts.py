"""train.py and train_v2.py: the originals' flags mean what they mean there, and the commands work as printed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import QUIET, SMALL, TRAIN, TRAIN_V2, script

from oelm.compat import diagnosis, training
from oelm.compat.arm_names import TRAIN_PY_ARMS
from oelm.compat.data_folders import existing_data
from oelm.compat.training import timing_stats
from oelm.core.arms import GPT_ARMS
from oelm.core.config import PRESETS, resolved
from oelm.machine.errors import UserError
from small_runs import REPOSITORY, child_environment, torchrun


@pytest.fixture
def folder(tmp_path, token_folder, monkeypatch):
    """A working folder with the data where the originals have it."""
    for name in ("tiny_stories", "tinystories"):
        shutil.copytree(token_folder, tmp_path / "data" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _stored(run: str, file: str = "config.json") -> dict:
    return json.loads((Path(run) / file).read_text())


def _v1(*arguments: str):
    options = training._v1_parser().parse_args(arguments)
    group = training._v1_group(options)
    return group, training._settings(options, arm=TRAIN_PY_ARMS[group], data="data/x")


def _v2(*arguments: str):
    options = training._v2_parser().parse_args(arguments)
    return training._settings(options, arm=options.model_type, data="data/x").run


# ---- What the flags mean ---------------------------------------------------------------------------------------------


def test_the_first_version_has_the_global_forms():
    for flags, group, arm in (
        ("--model_type gpt --freeze_qk true", "gpt_base", "trained"),
        ("--model_type oelm", "oelm_freeze", "frozen_orthogonal"),
        ("--model_type oelm --freeze_qk True", "oelm_freeze", "frozen_orthogonal"),
        ("--model_type oelm --freeze_qk false", "oelm_no_freeze", "trained_orthogonal"),
    ):
        found, settings = _v1(*flags.split())
        assert (found, settings.run.arm) == (group, arm)
        assert settings.run.model.parts == GPT_ARMS[arm].parts


def test_the_second_version_has_the_head_wise_form_and_the_random_one():
    arms = {"baseline": "trained", "oelm_v2": "frozen_head_orthogonal", "oelm_random": "frozen_normal"}
    for model_type, arm in arms.items():
        run = _v2("--model_type", model_type, "--max_lr", "1e-3", "--max_steps", "100000")
        assert run.arm == arm
        assert run.model.parts == GPT_ARMS[arm].parts
        assert run.training.learning_rate == 1e-3


def test_with_everything_omitted_it_is_medium_512():
    run = resolved(_v2("--model_type", "baseline"), {"vocabulary": 50257})
    medium = resolved(PRESETS["medium-512"])
    assert run.model == medium.model
    assert run.training == medium.training


def test_small_runs_scale_what_was_omitted():
    facts = {"vocabulary": 50257}
    small = _v1("--d_model", "256", "--num_layers", "2", "--num_heads", "4", "--max_steps", "100")[1].run
    run = resolved(small, facts)
    assert run.model.d_ff == 4 * 256
    assert run.training.warmup_steps == 10
    assert resolved(_v1("--max_steps", "100000")[1].run, facts).training.warmup_steps == 2000


def test_batch_size_is_of_one_process_and_the_config_holds_the_global_one(monkeypatch):
    assert _v2("--batch_size", "8").training.batch_size == 8
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert _v2("--batch_size", "8").training.batch_size == 32


def test_any_other_setting_can_be_given():
    run = _v2("--set", "weight_decay=0.05", "--seed", "3")
    assert run.training.weight_decay == 0.05
    assert run.seeds.model_dump() == {"weights": 3, "projections": 3, "data": 3}


@pytest.mark.parametrize("path", ["data/tiny_stories/train.bin", "data/tiny_stories", "data/elsewhere/train.bin"])
def test_missing_data_names_the_command_that_makes_it(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = path.removesuffix("/train.bin")
    with pytest.raises(UserError, match=f"^{folder}: .*: oelm prepare tinystories --out {folder}$"):
        existing_data(path)


def test_a_token_file_of_another_name_is_refused(folder):
    with pytest.raises(UserError, match=r"train\.bin"):
        existing_data("data/tiny_stories/val.bin")


@pytest.mark.parametrize(
    ("there", "asked", "found"),
    [
        ("tinystories", "data/tiny_stories/train.bin", "data/tinystories/train.bin"),
        ("tiny_stories", "data/tinystories", "data/tiny_stories"),
        ("tiny_stories", "data/tiny_stories", "data/tiny_stories"),
    ],
)
def test_either_spelling_finds_the_data(there, asked, found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / there).mkdir(parents=True)
    (tmp_path / "data" / there / "train.bin").touch()
    assert existing_data(asked) == found


def test_timing_stats_speak_of_the_run_as_the_originals_do():
    result = {"perplexity": 4.5, "wall_seconds": 9.0, "mean_step_seconds": 0.5, "validation_seconds": 1.0}
    starts = {"baseline": None, "oelm_v2": "orthogonal", "oelm_random": "normal"}
    for model_type, init_method in starts.items():
        found = timing_stats(_v2("--model_type", model_type), result, model_type=model_type)
        assert (found["model_type"], found.get("init_method")) == (model_type, init_method)
        assert (found["final_perplexity"], found["total_wall_time"], found["mean_step_time"]) == (4.5, 9.0, 0.5)


# ---- As printed ------------------------------------------------------------------------------------------------------


def test_the_small_check_of_the_originals_works_and_again_it_is_finished(folder, monkeypatch, capsys):
    command = [
        *("--model_type", "oelm", "--freeze_qk", "true", "--d_model", "32", "--num_layers", "2", "--num_heads", "4"),
        *("--max_steps", "4", "--batch_size", "4", "--data_path", "data/tiny_stories/train.bin", "--seq_len", "16"),
    ]
    done = script(TRAIN, *command, *QUIET)
    assert done.returncode == 0, done.stderr
    run = "models/checkpoints/exp_oelm_freeze"
    config = _stored(run)
    assert config["arm"] == "frozen_orthogonal"
    assert config["model"]["d_ff"] == 128
    assert _stored(run, "experiment_result.json")["frozen"] == 2 * 2 * 32 * 32
    timing = _stored(run, "timing_stats.json")
    assert (timing["model_type"], timing["init_method"]) == ("oelm", "orthogonal")
    assert "oelm_freeze here is the arm frozen_orthogonal" in done.stdout
    assert "finished" in (Path(run) / "training.log").read_text()
    monkeypatch.setattr(sys, "argv", ["train.py", *command, *QUIET])
    (Path(run) / "timing_stats.json").unlink()  # as after a kill between the result and it
    training.train_v1()
    assert "this run is finished" in capsys.readouterr().out
    assert _stored(run, "timing_stats.json") == timing


def test_two_processes_under_torchrun_share_one_run(folder):
    command = ["--model_type", "gpt", "--max_steps", "3", "--data_path", "data/tiny_stories/train.bin"]
    done = torchrun(str(TRAIN), *command, "--out_dir", "models/checkpoints/exp_gpt_base", *SMALL, *QUIET)
    assert done.returncode == 0, done.stderr
    assert "4 sequences on each of 2 processes, 8 per update" in done.stdout
    run = "models/checkpoints/exp_gpt_base"
    assert _stored(run)["training"]["batch_size"] == 8
    assert _stored(run, "experiment_result.json")["world_size"] == 2


def test_a_stopped_run_says_how_to_go_on_and_the_same_command_does(folder):
    command = [
        *(sys.executable, str(TRAIN_V2), "--model_type", "oelm_v2", "--dataset", "tinystories", "--max_lr", "1e-3"),
        *("--max_steps", "200", "--save_interval", "100", "--val_interval", "100"),
        *("--out_dir", "outputs/GPT-02_oelm_freeze", *SMALL, *QUIET),
    ]
    run = Path("outputs/GPT-02_oelm_freeze")
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=child_environment()
    )
    deadline = time.monotonic() + 60
    while not (run / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith("train_v2.py: resume with: python ")
    done = script(*command[1:])
    assert done.returncode == 0, done.stderr
    assert "resuming from step" in done.stdout
    assert _stored(str(run), "experiment_result.json")["steps"] == 200


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--max_steps", "100"], "data/tinystories: no prepared data there; create it with: oelm prepare tinystories"),
        (["--model_type", "gpt5"], "argument --model_type: invalid choice: 'gpt5'"),
        (["--max_lr", "fast"], "argument --max_lr: invalid float value: 'fast'"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(arguments, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = script(TRAIN_V2, *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"train_v2.py: {line}")
    assert len(done.stderr.splitlines()) == 1


# ---- The page about them ---------------------------------------------------------------------------------------------

PAGE = (REPOSITORY / "docs" / "compat.md").read_text(encoding="utf-8")
PARSERS = {"train.py": training._v1_parser, "train_v2.py": training._v2_parser, "diagnose_freeze.py": diagnosis._parser}
SMALL_COMMANDS = re.findall(r"^    python (?:[^\\\n]|\\\n)+$", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize("text", SMALL_COMMANDS)
def test_small_commands_of_the_page_have_flags_that_exist(text):
    words = shlex.split(text.replace("\\\n", " "))
    place = next(index for index, word in enumerate(words) if word.endswith(".py"))
    assert (REPOSITORY / words[place]).is_file()
    name = Path(words[place]).name
    if name in PARSERS:
        PARSERS[name]().parse_args(words[place + 1 :])
