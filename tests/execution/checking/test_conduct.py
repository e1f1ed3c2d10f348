"""Checks end in one line each, whatever happens to their processes; their record is sealed and shown in reports."""

import contextlib
import json
import os
import sys
import tempfile
import time
from dataclasses import replace

import pytest
import typer

from oelm.analysis.provenance import _check
from oelm.cli.checking import check
from oelm.core.settings import load_settings
from oelm.execution.checking import conduct as checking
from oelm.execution.checking import outcomes, runs
from oelm.execution.checking.conduct import CHECKS, Check, chosen, conduct, measured_settings
from oelm.execution.checking.outcomes import CheckFailed, Here, Outcome, answer_of
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.show.closing import _checked
from oelm.storage.files import read_object, write_sealed
from oelm.study.kept_check import CHECK_FILE, stored_check
from oelm.study.reading import load_study
from oelm.study.shelf import Shelf
from small_runs import oelm_command


@pytest.fixture
def here(tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    return Here(folder, (), {"CUDA_VISIBLE_DEVICES": ""}, load_settings(preset="tiny"))


def row(name: str, run, lacks=lambda here: None) -> Check:
    return Check(name, (name, "检查"), lacks, run)


def failing(here: Here) -> Outcome:
    raise CheckFailed("the bits differ")


def test_every_row_has_its_words_and_says_what_it_lacks(here, monkeypatch):
    monkeypatch.setattr(checking, "lacking_to_compile", lambda kind: None)
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert all(all(check.words) and check.words[0] != check.words[1] for check in CHECKS)
    skipped = {check.name: check.lacks(here) for check in CHECKS if check.lacks(here)}
    assert skipped == dict.fromkeys(("memory", "efficiency"), "there is no GPU")
    alone = replace(here, gpus=("0",))
    assert {check.name for check in CHECKS if check.lacks(alone)} == {"processes", "efficiency"}
    assert not any(check.lacks(replace(here, gpus=("0", "1"))) for check in CHECKS)


def test_where_a_gpu_cannot_be_compiled_for_one_check_is_skipped_and_the_others_are_eager(here, monkeypatch):
    """As a run would be, which `execution.compile: on` would end instead."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # no Triton
    on_gpu = replace(here, gpus=("0", "1"))
    assert {check.name: check.lacks(on_gpu) for check in CHECKS if check.lacks(on_gpu)} == {
        "compiled": "there is no Triton; install it with the CUDA build of torch"
    }
    assert runs._settings(on_gpu)["execution"]["compile"] == "off"
    monkeypatch.setattr(outcomes, "lacking_to_compile", lambda kind: None)
    assert runs._settings(on_gpu)["execution"]["compile"] == "on"
    assert runs._settings(here)["execution"]["compile"] == "off"


@pytest.mark.parametrize(("efficiency", "state"), [(0.26, "pass"), (0.24, "fail")])
def test_several_gpus_that_do_less_than_one_fail(here, monkeypatch, efficiency, state):
    found = {"processes": 4, "efficiency": efficiency, "alone_seconds": 0.03, "together_seconds": 0.03 / efficiency}
    monkeypatch.setattr(checking, "answer_of", lambda *given, **options: found)
    outcome = checking._efficiency(replace(here, gpus=("0", "1", "2", "3")))
    assert outcome.state == state
    assert outcome.said.startswith(f"4 GPUs do {4 * efficiency:.2f} times the work of one ({efficiency:.0%}): ")


def test_a_check_passes_fails_or_is_skipped_in_one_line_and_none_ends_the_others(here):
    said = []
    damaged = here.folder / "result.json"
    damaged.write_text("{")
    rows = [
        row("one", failing),
        row("damaged", lambda here: read_object(damaged)),
        row("missing", lambda here: (here.folder / "weights").read_bytes()),
        row("two", lambda here: Outcome("pass", "equal", {"apart": 0.0})),
        row("three", failing, lambda here: "there is no GPU"),
    ]
    record = conduct(rows, here, say=said.append)
    assert [line.rpartition(" (")[0] for line in said] == [
        "fail     one        the bits differ",
        said[1].rpartition(" (")[0],
        f"fail     missing    [Errno 2] No such file or directory: '{here.folder / 'weights'}'",
        "pass     two        equal",
        "skipped  three      there is no GPU",
    ]
    assert said[1].startswith(f"fail     damaged    {damaged}: ")
    assert [each["state"] for each in record["results"]] == ["fail", "fail", "fail", "pass", "skipped"]


def test_what_several_checks_need_is_made_once_even_if_it_fails(here):
    made = []

    def make():
        made.append(1)
        raise CheckFailed("no run")

    for _ in range(2):
        with pytest.raises(CheckFailed, match="no run"):
            here.once("reference", make)
    assert made == [1]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import time; time.sleep(60)", "no end within 1 s, so it was stopped"),
        ("import os; os.kill(os.getpid(), 11)", "the process ended with signal 11"),
        ("import sys; sys.exit('oelm: CUDA error: an illegal memory access')", "CUDA error: an illegal memory access"),
        ("print('fine')", "fine"),  # and no answer
    ],
)
def test_a_child_that_hangs_dies_or_complains_is_named(here, tmp_path, monkeypatch, code, expected):
    (tmp_path / "faulty_child.py").write_text(code)
    monkeypatch.setattr(outcomes, "IN_CHILD", "faulty_child")
    beside = replace(here, variables={"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
    began = time.monotonic()
    with pytest.raises(CheckFailed) as caught:
        answer_of("device", {}, here=beside, seconds=1 if "sleep" in code else 60)
    assert str(caught.value) == expected
    assert time.monotonic() - began < 40


SUMMARY = """
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
oelm.execution.checking.in_child FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 4711)
  traceback : {traceback}
============================================================
"""


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        (
            "Traceback (most recent call last):\n  File x\ntorch.distributed.DistBackendError: NCCL error in: a.cpp",
            None,
        ),
        (
            "[rank1]: RuntimeError: no peer access\n[rank0]: RuntimeError: closed",
            "[rank1]: RuntimeError: no peer access",
        ),
        ("RuntimeError: one\noelm: rank 1: 3 of 8 sums are wrong", "rank 1: 3 of 8 sums are wrong"),
        ("NCCL WARN something", "traceback : Signal 11 (SIGSEGV) received by PID 4711"),
    ],
)
def test_of_several_processes_what_one_of_them_says_is_shown_and_not_the_end_of_a_summary(tmp_path, printed, expected):
    log = tmp_path / "output.txt"
    log.write_text(printed + SUMMARY.format(code=-11, traceback="Signal 11 (SIGSEGV) received by PID 4711"))
    assert outcomes.last_line(log) == (expected or printed.splitlines()[-1])


def test_runs_that_differ_in_a_single_bit_fail(tmp_path):
    directories = [RunDirectory(tmp_path / name) for name in ("first", "second")]
    for run in directories:
        run.checkpoint_folder(runs.STEPS).mkdir(parents=True)
        for name in (runs.MODEL, runs.MOMENTS):
            (run.checkpoint_folder(runs.STEPS) / name).write_bytes(b"\x00" * 8)
        run.result_file.write_text('{"val_loss": 2.5}')
    assert runs._equal(*directories, "equal").state == "pass"
    (directories[1].checkpoint_folder(runs.STEPS) / runs.MOMENTS).write_bytes(b"\x00" * 7 + b"\x01")
    outcome = runs._equal(*directories, "equal")
    assert (outcome.state, outcome.said.split(" differ")[0]) == ("fail", runs.MOMENTS)


def test_what_is_measured_is_the_studys_own_model():
    settings, called = measured_settings(load_study("qk_freeze"), "cuda")
    assert (settings.run.model.d_model, settings.run.training.batch_size) == (512, 16)
    assert called == "gpt_base of qk_freeze"
    assert measured_settings(load_study("xnli_bert"), "cpu")[1] == "preset tiny"  # an encoder comes with its data
    with pytest.raises(UserError, match="--only device,warp: 'warp' is not a check; there are device, repeated"):
        chosen("device,warp")
    with pytest.raises(UserError, match=r"^--only: name at least one of device, repeated, "):
        chosen(" ,")


# ---- Kept with a study ---------------------------------------------------------------------------------------------


def kept(folder, here, *rows) -> Shelf:
    folder.mkdir(exist_ok=True)
    write_sealed(folder / CHECK_FILE, conduct(rows, here, say=lambda line: None))
    return Shelf(folder)


def test_the_record_is_shown_in_both_languages(tmp_path, here):
    facts = {"efficiency": 0.8, "processes": 2}
    shelf = kept(
        tmp_path / "runs", here, row("efficiency", lambda here: Outcome("pass", "as hoped", facts)), row("one", failing)
    )
    found = _check(shelf)
    english, chinese = (_checked(found, language) for language in ("en", "zh"))
    assert "1 passed, 1 failed, 0 skipped" in english
    assert "2 GPUs in parallel at 80% efficiency" in english
    assert "failed: one (the bits differ)" in english
    assert "通过 1 项，失败 1 项" in chinese
    assert "2 个 GPU 并行效率 80%" in chinese
    assert "检查" in chinese


def test_a_record_that_was_changed_is_named(tmp_path, here):
    shelf = kept(tmp_path / "runs", here, row("one", failing))
    file = shelf.folder / CHECK_FILE
    file.write_text(file.read_text().replace('"fail"', '"pass"'))
    assert "check.json" in _checked(_check(shelf), "en")
    file.unlink()
    assert stored_check(shelf.folder) is None
    assert _check(shelf) is None


def test_the_command_ends_with_1_if_a_check_fails_and_keeps_what_it_wrote(monkeypatch, capsys, tmp_path):
    def failing_with_a_log(here: Here) -> Outcome:
        (here.folder / "log.txt").write_text("why")
        return Outcome("fail", "no")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("oelm.execution.checking.conduct.CHECKS", (row("one", failing_with_a_log),))
    with pytest.raises(typer.Exit) as caught:
        check(cpu=True)
    assert caught.value.exit_code == 1
    said = capsys.readouterr().out
    assert "checking the processor (--cpu); memory uses preset tiny" in said
    assert "1 check: 0 passed, 1 failed, 0 skipped" in said
    (kept,) = tmp_path.iterdir()
    assert f"{kept}: what the checks wrote, kept because one failed" in said
    assert (kept / "log.txt").read_text() == "why"


@pytest.mark.parametrize(("ends", "expected"), [(lambda here: Outcome("pass", "fine"), None), (None, KeyError)])
def test_nothing_is_left_of_checks_that_pass_or_are_broken_off(monkeypatch, tmp_path, ends, expected):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("oelm.execution.checking.conduct.CHECKS", (row("one", ends or (lambda here: {}["broken"])),))
    with pytest.raises(expected) if expected else contextlib.nullcontext():
        check()
    assert list(tmp_path.iterdir()) == []


def test_of_several_slices_of_a_gpu_one_is_checked(monkeypatch, capsys, tmp_path):
    """CUDA_VISIBLE_DEVICES may name several, and CUDA takes the first."""
    seen = []

    def look(here: Here) -> Outcome:
        seen.append((here.gpus, here.variables["CUDA_VISIBLE_DEVICES"]))
        return Outcome("pass", "fine")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-a,MIG-b")
    monkeypatch.setattr("oelm.execution.checking.conduct.CHECKS", (row("one", look),))
    check()
    assert seen == [(("MIG-a",), "MIG-a")]
    assert "only MIG-a is checked: CUDA shows a process one slice of a GPU (MIG) at most" in capsys.readouterr().out


def test_single_checks_done_again_leave_the_others_in_the_record(monkeypatch, tmp_path):
    def two(said):
        rows = (row("one", lambda here: Outcome("pass", said)), row("two", lambda here: Outcome("pass", said)))
        monkeypatch.setattr("oelm.execution.checking.conduct.CHECKS", rows)

    def stored():
        return {each["name"]: each["said"] for each in stored_check(tmp_path)["results"]}

    two("first")
    check(cpu=True, study="demo", runs=tmp_path)
    two("second")
    check(cpu=True, study="demo", runs=tmp_path, only="one")
    assert list(stored().items()) == [("one", "second"), ("two", "first")]
    monkeypatch.setattr("oelm.execution.checking.conduct.processor", lambda: "another processor")
    with pytest.raises(UserError, match=r"of another version, machine or model.*run all checks, without --only"):
        check(cpu=True, study="demo", runs=tmp_path, only="one")
    check(cpu=True, study="demo", runs=tmp_path)
    assert set(stored().values()) == {"second"}


def test_the_command_keeps_the_record_with_a_study(tmp_path):
    words = "check --cpu --only device,memory --study demo --json --runs"
    done = oelm_command(*words.split(), str(tmp_path / "runs"))
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert [each["state"] for each in record["results"]] == ["pass", "skipped"]
    assert stored_check(tmp_path / "runs")["results"] == record["results"]
    assert "skipped  memory     there is no GPU" in done.stderr


@pytest.mark.trial
def test_all_of_it_on_this_machine():
    done = oelm_command("check", "--cpu")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.trial
def test_a_planted_difference_is_found(here, monkeypatch):
    """The second run begins with other weights."""
    prepared = runs._prepared

    def other_seed(here, name, settings):
        return prepared(here, name, settings | ({"seeds": {"weights": 1}} if name == "again" else {}))

    monkeypatch.setattr(runs, "_prepared", other_seed)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert runs.repeated(here).state == "fail"
