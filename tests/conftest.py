"""What every test may use, and how threads behave while tests share their cores with processes they start."""

from __future__ import annotations

import itertools
import multiprocessing.process
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oelm  # noqa: F401 - sets how OpenMP threads wait, before torch is imported
from left_out import advice
from small_runs import VOCABULARY
from warm import close_shared_servers

os.environ.setdefault("OMP_NUM_THREADS", "1")

# Hundreds of processes import the same modules: what one has compiled is kept for the others.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Started in the background of a script, or under nohup, we ignore these signals, and so would every process we start.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


# One process works on a file, so these are begun before all others: the many short files fill what is left at the end.
LONGEST = {
    "test_wheel.py", "test_controller.py", "test_slurm.py", "test_a_study_there.py", "test_copying.py",
    "test_kill_and_resume.py", "test_warm_starts.py", "test_freezing.py",
}  # fmt: skip
# Their tests wait for real processes, servers and clusters. Begun last, one such file would go on alone at the end.
FIRST = {"execution", "remote", "faults", "compat", "test_wheel.py"}
# Left out of `make quick` besides, because they compute for long. It says what should be added.
SLOW = FIRST | {
    "test_board_serving.py", "test_board_state.py", "test_in_browser.py",
    "fake_cuda", "models", "adaptation", "notebook", "verification", "test_adapting.py", "test_latex.py",
    "test_trackers.py",
    "test_classification.py", "test_classification_report.py", "test_default_tuning.py", "test_rate_allowance.py",
    "test_encodings.py", "test_examination.py", "test_figures.py", "test_hypotheses.py", "test_metric_records.py",
    "test_one_more_measure.py", "test_prepare.py", "test_prepare_sentences.py", "test_readme.py", "test_report.py",
    "test_rows.py", "test_sealing.py", "test_sentence_task.py", "test_sources.py", "test_tasks.py", "test_tokenizer.py",
}  # fmt: skip
LONG_SECONDS = 10.0  # for one file


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests that take no time: no other Python is started")
    parser.addoption("--alone", action="store_true", help="only tests that start no other Python and compile nothing")


def _starts_nothing(config: pytest.Config) -> bool:
    return bool(config.getoption("quick") or config.getoption("alone"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: [_is_in(places, item) for places in (LONGEST, FIRST, SLOW)], reverse=True)
    left_out = SLOW if config.getoption("quick") else FIRST if config.getoption("alone") else set()
    config.hook.pytest_deselected(items=[item for item in items if _is_in(left_out, item)])
    items[:] = [item for item in items if not _is_in(left_out, item)]


def _is_in(places: set[str], item: pytest.Item) -> bool:
    return not places.isdisjoint((item.path.parent.name, item.path.name))


@pytest.fixture(scope="session", autouse=True)
def _no_other_python(request: pytest.FixtureRequest) -> Iterator[None]:
    """In `make quick`, and with --alone, a test that comes to start one, or to compile, is left out."""
    if not _starts_nothing(request.config):
        yield
        return
    begin = subprocess.Popen.__init__

    def checked(self: subprocess.Popen, args: Any, *rest: Any, **options: Any) -> None:
        program = os.path.basename(str(args[0] if isinstance(args, list | tuple) else args))
        if program.startswith(("python", "oelm", "torchrun", "bash", "sh")):
            pytest.skip("starts another process")
        begin(self, args, *rest, **options)

    def left_out(*_: Any, **options: Any) -> None:
        pytest.skip("starts another process, or compiles")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", checked)
        patch.setattr(multiprocessing.process.BaseProcess, "start", left_out)
        patch.setattr("torch.nn.Module.compile", left_out)
        yield


def pytest_sessionfinish() -> None:
    close_shared_servers()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> Iterator[None]:
    yield  # after the list of every single test that was skipped
    if not _starts_nothing(config):
        skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", [])]
        lines = list(advice(str(each[2]).removeprefix("Skipped: ") for each in skipped if isinstance(each, tuple)))
        for line in (f"Left out, {len(skipped)} tests or files of tests:", *lines) if lines else ():
            terminalreporter.write_line(line)
        return
    if not config.getoption("quick"):
        return
    taken: Counter[str] = Counter()
    for report in itertools.chain(*terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            taken[report.location[0]] += report.duration
    for file, seconds in taken.most_common():
        if seconds > LONG_SECONDS:
            terminalreporter.write_line(
                f"{file}: {seconds:.1f} s; if that is usual, name it in SLOW of tests/conftest.py"
            )


@pytest.fixture(scope="session")
def token_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bare token files with some structure: a noisy walk, so that a model can learn from it."""
    folder = tmp_path_factory.mktemp("tokens")
    generator = np.random.default_rng(0)
    for name, length in (("train", 20_000), ("val", 4_000)):
        steps = generator.integers(0, 4, size=length)
        (np.cumsum(steps) % VOCABULARY).astype("<u2").tofile(folder / f"{name}.bin")
    return folder
