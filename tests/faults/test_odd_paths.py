"""P1, P2: any path works, in any script; names that a shell, a report or another machine could misread are refused."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from patches import DIE_AT_STEP
from runs import assert_equal_runs, assert_refused, training

from warm import cold

RULE = "use at most 200 letters, digits, '.', '_', '+', '-' or spaces, "


@pytest.fixture(scope="module")
def odd_data(server, tmp_path_factory) -> Path:
    """A small prepared corpus, with a tokenizer, in a folder with an odd name."""
    folder = tmp_path_factory.mktemp("odd") / "Geschichten 故事 📚 $HOME 'q' \"r\" :smile: [bold]"
    ended = server.run(
        "prepare", "stories", "--stories", 300, "--tokenizer", "bpe:300", "--out", folder, "--workers", 1
    )
    assert ended.code == 0, ended.text
    return folder


def test_train_resume_and_generate_work_with_any_path(server, odd_data, tmp_path):
    folder = tmp_path / "Läufe 跑 🎉; rm -rf x"
    folder.mkdir()
    config = folder / "Einstellung 配置 ⚙️ #1.yaml"
    config.write_text("preset: tiny\narm: frozen_head_orthogonal\n")
    runs = {}
    for name in ("ganz [red]:heart:", "unterbrochen 💥"):
        runs[name] = ["train", config, *training(folder / name, odd_data, vocabulary=None)[3:]]
    whole, killed = runs.values()
    ended = server.run(*whole)
    assert ended.code == 0, ended.text
    assert str(folder / "ganz [red]:heart:") in ended.out
    assert server.run(*killed, patch=DIE_AT_STEP.format(step=25)).code == -signal.SIGKILL
    ended = server.run(*killed)
    assert ended.code == 0, ended.text
    assert "resuming from step 21" in ended.out
    whole_run, killed_run = (folder / name for name in runs)
    assert_equal_runs(killed_run, whole_run)
    texts = {server.run("generate", run, "--prompt", "One day", "--tokens", 20).out for run in (whole_run, killed_run)}
    assert len(texts) == 1
    assert texts.pop().startswith("One day")


def test_relative_paths_work_from_an_odd_folder(server, odd_data, tmp_path):
    here = tmp_path / "ein Ordner 🗂"
    here.mkdir()
    words = training(Path("läuft"), Path(os.path.relpath(odd_data, here)), vocabulary=None, **{"training.steps": 8})
    ended = server.run(*words, cwd=here)
    assert ended.code == 0, ended.text
    assert (here / "läuft" / "best" / "model.safetensors").is_file()


def test_a_run_without_out_is_named_after_its_config_whatever_that_is_called(server, data, tmp_path):
    config = tmp_path / "⚙️ mein Lauf #1.yaml"
    config.write_text("preset: tiny\n")
    words = training(tmp_path, data, **{"training.steps": 8})
    at = words.index("--out")
    ended = server.run("train", config, *words[1:at], *words[at + 2 :], cwd=tmp_path)
    assert ended.code == 0, ended.text
    (group,) = (tmp_path / "runs").iterdir()
    assert group.name == "mein Lauf -1"
    (run,) = group.iterdir()
    assert (run / "experiment_result.json").is_file()


def test_the_locale_does_not_matter(tmp_path):
    """Of a bare system or a cron job: names still are what they are."""
    words = training(tmp_path / "Lauf 跑 🎉", tmp_path / "keine Daten 🎉")
    ended = cold(*words, LC_ALL="C", LANG="C")
    assert ended.code == 2
    assert f"{tmp_path / 'keine Daten 🎉'}: no prepared data there" in ended.err


# ---- P2 ------------------------------------------------------------------------------------------------------------

CONTROLS = {*range(10), *range(11, 32), *range(127, 160)}
IN_A_PATH, DASH, NO_NAME = "cannot contain control characters", "cannot begin with '-'", "give the folder itself"


@pytest.mark.parametrize(
    ("flag", "given", "said"),
    [
        *(
            ("name", name, RULE)
            for name in (
                "a/b", "..", ".hidden", "-oProxyCommand=x", "_", "new\nline", "escape\x1b[31m", "c1\x9b31m",
                "back\\slash", "$(touch marker)", "`touch marker`", "a;b", "a'b", 'a"b', "a*b", "<script>", "a:b",
                "ends in a blank ", " begins with one", "", "x" * 201, "right\u202eleft",
            )
        ),
        ("out", "new\nline", IN_A_PATH),
        ("out", "escape\x1b[31m/run", IN_A_PATH),
        ("out", "runs/-rf", DASH),
        ("out", "-rf", DASH),
        ("out", "runs/..", NO_NAME),
        ("out", "", NO_NAME),
        ("out", b"not text \xff".decode(errors="surrogateescape"), "not valid UTF-8"),
    ],
)  # fmt: skip
def test_what_could_be_misread_is_refused_with_the_rule(without_torch, tmp_path, flag, given, said):
    ended = without_torch("train", f"--{flag}={given}", cwd=tmp_path)
    assert_refused(ended, said)
    assert CONTROLS.isdisjoint(map(ord, ended.err))
    assert flag == "out" or ended.err.isprintable() or ended.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_an_ordinary_name_in_any_script_is_allowed(without_torch, tmp_path):
    for name in ("v1.2+cuda", "mein Lauf", "跑-1", "опыт_3", "x" * 200):
        assert RULE not in without_torch("train", f"--name={name}", cwd=tmp_path).err
