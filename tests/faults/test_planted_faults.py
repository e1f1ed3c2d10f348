"""Every check of what is stored, measured or refused, taken out of a copy of the sources: tests must turn red.

A row names a file of src/oelm, what stands in it once, what is put in its place, and the tests that speak for it.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PLANTED = {
    "seals: digests are not compared": (
        "sealing.py", 'raise Damaged(path, "changed since the run was sealed")', "pass",
        "test_sealing.py -k changed_file"),
    "seals: a missing seal is no matter": (
        "sealing.py", 'if state in ("finished", "diverged"):', 'if state == "never":', "test_sealing.py -k gone"),
    "seals: a file may come later": (
        "sealing.py", 'raise Damaged(path, "was added after the run was sealed")', "pass",
        "test_sealing.py -k came_after"),
    "results: not held against the config": (
        "sealing.py", "if key in result and result[key] != value:", "if False:", "test_sealing.py"),
    "results: any perplexity": (
        "sealing.py", "if not math.isclose(said, computed, rel_tol=1e-9):", "if False:",
        "test_sealing.py"),
    "results: not held against the metrics": (
        "sealing.py", "or _against_metrics(directory, run, result)", "", "test_sealing.py"),
    "results: predictions are not counted": (
        "sealing.py", "if predictions and not _agree(predictions, result):", "if False:", "test_sealing.py"),
    "schemas: negative losses": (
        "schemas.py", "Loss = Annotated[float, Field(ge=0)]", "Loss = Annotated[float, Field()]", "test_sealing.py"),
    "schemas: true is a number": (
        "schemas.py", 'ConfigDict(strict=True, extra="allow", allow_inf_nan=False)', 'ConfigDict(extra="allow")',
        "test_sealing.py"),
    "files: deep nesting": (
        "files.py", "if _levels(value) > MOST_LEVELS:", "if False:", "test_files.py"),
    "files: seals of single files": (
        "files.py", "if seal != digest_of(tree):", "if False:", "study/test_bench.py study/test_study_registration.py"),
    "manifests: may name no files": (
        "run_directory.py", "for name in CHECKPOINT_FILES:", "for name in ():",
        "faults/test_damaged_checkpoints.py -k manifest"),
    "manifests: may leave their folder": (
        "files.py", 'raise Damaged(manifest, f"names {str(name)[:80]!r}, which is not a file in its folder")', "pass",
        "faults/test_damaged_checkpoints.py -k leaves_the_folder"),
    "verify: any loss will do": (
        "verification/recomputing.py", "if not math.isclose(reported, seen.loss, rel_tol=said.tolerance):", "if False:",
        "verification/test_recomputing.py"),
    "verify: the last checkpoint is not heard": (
        "verification/recomputing.py", 'check_progress(directory, result, read_state(checkpoint)["progress"])',
        "pass",
        "verification/test_recomputing.py"),
    "choices: made anew each time": (
        "study/kept_choices.py", "kept[arm], grid = choice_of(decision)", "continue", "study/test_kept_choices.py"),
    "halving: one seed drops a value": (
        "study/halving.py", "return fmean(differences[:-1])", "return fmean(differences)", "study/test_halving.py"),
    "halving: rounds are decided anew each time": (
        "study/kept_choices.py", "rounds[done.arm, done.number] = done", "pass",
        "study/test_rates.py -k binds"),
    "registrations: changes are not told": (
        "study/registration.py", "changes: tuple[tuple[str, Any, Any], ...] = ()  # key, registered, now",
        "changes = ()", "study/test_study_registration.py"),
    "edited studies: nobody is a stray": (
        "study/strays.py", "if not left:", "if True:", "study/test_strays.py"),
    "edited studies: any execution is the declared one": (
        "study/doubts.py", "if place_of(then) != place_of(_as_computed(run, key, declared)):", "if False:",
        "study/test_doubts.py"),
    "seeds: a copy is a run of its own": (
        "study/doubts.py", "if len(by_seed) > 1:", "if False:", "study/test_doubts.py"),
    "seeds: verify takes a copy for a run of its own": (
        "verification/several.py", "return bool(self.copies) or any(", "return any(", "verification/test_several.py"),
    "choices: believed about when they were made": (
        "study/kept_choices.py", "early = sum(time < made for time in started if time is not None)", "early = 0",
        "study/test_kept_choices.py -k dated_after"),
    "folders: a mistyped one is empty": (
        "cli/given.py", 'raise UserError(f"--runs {path}: no such folder")', "pass", "test_cli.py -k not_there_are_no"),
    "archives: a mistyped one is an empty folder": (
        "archives.py", 'raise UserError(f"{named}: no such archive")', "pass", "test_archives.py -k is_not_there"),
    "links: logs and locks follow them": (
        "files.py", "flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC",
        "flags | os.O_CREAT | os.O_CLOEXEC",
        "test_ownership.py faults/test_links.py"),
    "links: folders are cleared through them": (
        "files.py", "raise _linked(path, os.readlink(path))\n\n\ndef open_own", "pass\n\n\ndef open_own",
        "faults/test_links.py"),
    "reports: written in place": (
        "whole_folder.py", "folder = new_folder(temporary_name(target))",
        "target.mkdir(parents=True, exist_ok=True)\n    yield target\n    return\n    folder = target",
        "test_whole_folder.py reporting/test_report.py"),
    "control characters: raw": (
        "visible.py", "return _ACTS.sub(lambda found: _escape(ord(found.group())), str(text))", "return str(text)",
        "test_visible.py faults/test_control_characters.py"),
    "locks: a clock ahead blocks for ever": (
        "ownership.py", "and not (owner.has_another_clock and owner == dead)", "",
        "test_ownership.py faults/test_lock.py"),
    "bench: the control widens nothing": (
        "study/bench.py", "half = max(half, abs(off) + uncertain)", "pass",
        "study/test_bench.py timing/test_blocks.py"),
    "bench: one order for all blocks": (
        "timing/blocks.py", "shuffled.sample(list(contenders), len(contenders)), steps)", "list(contenders), steps)",
        "timing/test_blocks.py"),
    "bench: nothing disturbs": (
        "timing/circumstances.py", "return [cause for cause, is_beyond in beyond.items() if is_beyond]", "return []",
        "timing/test_circumstances.py"),
    "bench: a busy machine decides": (
        "study/bench.py", "return len(self.quiet) < LEAST_BLOCKS <= self.blocks", "return False",
        "study/test_bench.py analysis/test_hypotheses.py"),
    "bench: everything is plausible": (
        "study/bench.py", "return self.smallest is not None and self.high < self.smallest", "return False",
        "study/test_bench.py analysis/test_hypotheses.py"),
    "bench: any config will do": (
        "study/bench_fit.py", "if before.get(key) != now.get(key)]", "if False]",
        "study/test_bench_fit.py analysis/test_hypotheses.py -k setting_that or another_config"),
    "bench: the last one stays": (
        "study/bench_fit.py", "if not beside.can_decide or not usable:", "if True:",
        "study/test_bench_fit.py timing/test_interleaved.py -k replace or worse"),
    "bench: arms go by their names": (
        "study/bench_fit.py", "bench = _by_config(bench, plan, facts)", "pass", "study/test_bench_fit.py"),
    "GPUs: attention may differ from run to run": (
        "training/determinism.py", "torch.use_deterministic_algorithms(deterministic)",
        "torch.use_deterministic_algorithms(deterministic, warn_only=True)", "training/test_determinism.py"),
    "GPUs: all busy is taken for none here": (
        "experiments/gpus.py", "    if here and not usable:\n", "    if False:\n", "experiments/test_gpus.py"),
    "hung processes: nobody is still": (
        "experiments/progress.py", "        return None\n    return moved", "        return None\n    return None",
        "experiments/test_standing_still.py"),
    "memory: everything fits": (
        "training/memory.py", "if needed > available:", "if False:", "training/test_memory.py"),
    "resources: no inodes are a full disk": (
        "exhaustion.py", "if disk.f_files and disk.f_favail < FEW_INODES and free_bytes > needed_bytes:", "if False:",
        "faults/test_limits.py test_exhaustion.py"),
    "archives: any directory will do": (
        "archives.py", "if reader.stream.read(len(expected) + 1) != expected:", "if False:", "test_archives.py"),
    "archives: names may lead elsewhere": (
        "archives.py", "        _check_name(member.name)", "        pass", "test_archives.py"),
    "archives: files need not be those of the list": (
        "archives.py", 'raise Damaged(archive, f"its files are not those that {LIST} names")', "pass",
        "test_archives.py"),
    "data: whatever was once whole still is": (
        "data/remembered.py", "if files.get(name) == entry", "if name in files", "data/test_remembered.py"),
    "sources: digests of any scheme are compared": (
        "sources.py", "scheme_of(each) if key == SOURCE_DIGEST else 0", "0", "test_sources.py study/test_confounds.py"),
    "metrics: all of a long stream is kept": (
        "metric_records.py", "while len(self.kept) > MOST_POINTS + len(self.also):", "while False:",
        "test_metric_records.py"),
}  # fmt: skip
IN_EVERY_RUN = ("seals: digests are not compared", "bench: the control widens nothing", "control characters: raw")


def assert_turns_red(tmp_path, file: str, stands: str, planted: str, tests: str) -> None:
    copy = tmp_path / "copy"
    for part in ("src", "tests", "docs"):  # tests start processes from the sources beside them, and read the findings
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    faulty = copy / "src" / "oelm" / file
    text = faulty.read_text()
    faulty.write_text(text.replace(stands, planted))
    paths, _, selection = tests.partition(" -k ")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}"]
    command += [f"tests/{path}" for path in paths.split()] + (["-k", selection] if selection else [])
    done = subprocess.run(
        command,
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, f"exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-1000:]}"
    assert "failed" in done.stdout.splitlines()[-1]  # an assertion, not an error of collection


def test_every_check_that_is_planted_against_is_in_the_sources():
    for fault, (file, stands, _, tests) in PLANTED.items():
        assert (ROOT / "src" / "oelm" / file).read_text().count(stands) == 1, f"{fault}: {file} has not once: {stands}"
        for path in tests.partition(" -k ")[0].split():
            assert (ROOT / "tests" / path).exists(), f"{fault}: {path}"


@pytest.mark.parametrize("fault", IN_EVERY_RUN)
def test_a_check_that_is_taken_out_turns_its_tests_red(fault, tmp_path):
    assert_turns_red(tmp_path, *PLANTED[fault])


@pytest.mark.trial
@pytest.mark.parametrize("fault", [fault for fault in PLANTED if fault not in IN_EVERY_RUN])
def test_every_check_that_is_taken_out_turns_its_tests_red(fault, tmp_path):
    assert_turns_red(tmp_path, *PLANTED[fault])
