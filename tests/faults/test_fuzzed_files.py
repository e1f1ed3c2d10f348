"""C6: whatever becomes of one stored file, everything else goes on, no number changes, and nothing ends in a traceback.

Every call is a real verb's own function on a real folder; each trial changes one file in one way.
"""

import json
import random
import shutil
from pathlib import Path

import pytest

from faults.runs import write_tokens
from oelm.analysis.summary import findings_as_json, findings_of
from oelm.execution.controller import refuse_what_runs_elsewhere
from oelm.execution.local import LocalEngine
from oelm.execution.status import find_run, log_lines, overview, study_status, study_tree
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.run.training.run import train
from oelm.show.report import write_tables
from oelm.storage.files import SEAL, digest_of, read_sealed, write_json
from oelm.storage.ownership import Process, owner_of
from oelm.study.plan import planned
from oelm.study.registration import register
from oelm.study.shelf import Shelf
from small_runs import quiet_execution, small_run
from stored_runs import facts_of, hypothesis, small_study, store_bench, store_study

ARMS = ["trained", "frozen_head_orthogonal"]
STUDY = small_study(
    arms=ARMS, seeds=[0, 1, 2], tuning={"grid": {"learning_rate": [1e-3, 2e-3]}, "extend": 0}, hypotheses=[hypothesis()]
)


def losses(arm, seed, stage, point):
    return 2.5 + 0.001 * seed + 0.01 * (arm != ARMS[0]) + dict(point).get("training.learning_rate", 0.0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "runs" / "small"
    register(STUDY, folder)
    store_study(STUDY, folder, losses)
    store_bench(folder, baseline=ARMS[0], seconds={arm: [0.1, 0.11, 0.12] for arm in ARMS})
    owner = Process.of(1).__dict__ | {"since": "then", "heartbeat": 1.0}
    write_json(folder / "controller.lock", owner)
    there = {"server": "lab", "seen": "then", "pid": 1, "runs": []}
    write_json(folder / "pulled.json", {"at_work": {"lab:x": there}, "runs": {}, "files": {}})
    for number, run in enumerate(sorted(path.parent for path in folder.rglob("config.json"))):
        write_json(run / "lock.json", owner)
        (run / "training.log").write_text("a line\n")
        local = Process.of(2**22 + 7).__dict__ | {"units": ["slot 0"], "numbers": [0], "start": "x", "started": "then"}
        slurm = {"kind": "slurm", "name": "small-1", "task": number, "submitted": "then"}
        write_json(run / "slot.json", slurm if number % 2 else local)
    return folder


# ---- Injuries ------------------------------------------------------------------------------------------------------

NASTY = [
    None, True, -1, 0, 3, 1e308, 10**30, -2.5, "", "x", "\x1b[2J", "../../etc", [], ["x"], {}, {"x": 1}, [[]], "1",
    {"state": ["x"]}, "\ud800", "2.5", 99,
]  # fmt: skip


def places(tree, path=()):
    """Every place in a tree, by its path."""
    yield path
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from places(value, (*path, key))


def with_another_value(content: bytes, draw: random.Random) -> bytes:
    """One value of a JSON file, at any depth, replaced by something nasty, or left out."""
    tree = json.loads(content)
    path = draw.choice(list(places(tree)))
    if not path:
        return json.dumps(draw.choice(NASTY)).encode()
    node = tree
    for key in path[:-1]:
        node = node[key]
    if draw.random() < 0.2:
        del node[path[-1]]
    else:
        node[path[-1]] = draw.choice(NASTY)
    return json.dumps(tree).encode()


def flipped(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def in_one_line(content: bytes, draw: random.Random) -> bytes:
    """The same for a file of one record a line."""
    lines = content.splitlines()
    place = draw.randrange(len(lines))
    lines[place] = with_another_value(lines[place], draw)
    return b"\n".join(lines) + b"\n"


INJURIES = [
    lambda content, draw: b"",
    lambda content, draw: content[: draw.randrange(len(content))],
    flipped,
    lambda content, draw: b"[" * draw.choice([30, 900, 100_000]),
    lambda content, draw: b'{"x":' * 5000 + b"1" + b"}" * 5000,
    lambda content, draw: b"9" * 5000,
    lambda content, draw: b'{"val_loss": 1e999, "state": "finished", "step": NaN}',
    lambda content, draw: bytes(draw.randrange(256) for _ in range(200)),
]


def injured(file: Path, draw: random.Random) -> None:
    content, lines = file.read_bytes(), file.suffix == ".jsonl"
    own = in_one_line if lines else with_another_value
    injury = own if draw.random() < 0.6 else draw.choice(INJURIES)
    if file.suffix not in (".json", ".jsonl", ".lock"):
        injury = draw.choice(INJURIES)
    file.write_bytes(injury(content, draw))


# ---- The laws ------------------------------------------------------------------------------------------------------


def everything_said(folder: Path, out: Path) -> dict[str, dict[int, float]]:
    """What the verbs that read a study do; returns the losses that numbers were made of."""
    refused = []
    for verb in (
        lambda: study_status(STUDY, folder),
        lambda: study_tree(STUDY, folder),
        lambda: overview(folder.parent),
        lambda: LocalEngine(folder).living_runs(),
        lambda: owner_of(folder / "controller.lock"),
        lambda: refuse_what_runs_elsewhere("small", folder),
        lambda: planned(STUDY, Shelf(folder), facts=facts_of(STUDY)),
        lambda: list(log_lines(find_run("trained-s0", folder.parent), lines=5, follow=False)),
    ):
        try:
            verb()
        except UserError as error:
            refused.append(str(error))
    assert all(line.strip() for line in refused)
    findings = findings_of(STUDY, Shelf(folder))
    json.dumps(findings_as_json(findings), allow_nan=False)
    write_tables(findings, out)
    return {arm: summary.losses for arm, summary in findings.arms.items()}


def assert_harmless(whole: Path, folder: Path, out: Path, draw: random.Random) -> None:
    shutil.copytree(whole, folder)
    file = draw.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    injured(file, draw)
    found = everything_said(folder, out)
    for arm in ARMS:
        expected = {seed: losses(arm, seed, "final", (("training.learning_rate", 1e-3),)) for seed in STUDY.seeds}
        assert found[arm].items() <= expected.items(), file
        if file.parent.name == folder.name or file.name not in COUNTED:
            assert not found[arm] or found[arm] == expected, file
    shutil.rmtree(folder)


COUNTED = {
    "config.json", "environment.json", "parameters.json", "metrics.jsonl", "experiment_result.json", "seal.json",
}  # fmt: skip


@pytest.mark.parametrize(("first", "trials"), [(0, 15), pytest.param(1000, 800, marks=pytest.mark.trial)])
def test_no_injured_file_of_a_study_changes_a_number_or_ends_in_a_traceback(whole, tmp_path, first, trials):
    for number in range(first, first + trials):
        folder = tmp_path / str(number) / "small"
        try:
            assert_harmless(whole, folder, tmp_path / "out", random.Random(number))
        except Exception as error:
            raise AssertionError(f"trial {number}, in {folder}") from error


def sealed_again(whole: Path, folder: Path, out: Path, draw: random.Random) -> None:
    """One that somebody changed and gave a seal that fits."""
    shutil.copytree(whole, folder)
    file = folder / draw.choice(["choices.json", "registration.json"])
    tree = json.loads(with_another_value(json.dumps(read_sealed(file)).encode(), draw))
    if isinstance(tree, dict):
        file.write_text(json.dumps(tree | {SEAL: digest_of(tree)}))
    everything_said(folder, out)
    shutil.rmtree(folder)


@pytest.mark.parametrize(("first", "trials"), [(0, 6), pytest.param(100, 400, marks=pytest.mark.trial)])
def test_a_study_file_with_another_value_and_a_seal_that_fits_ends_in_no_traceback(whole, tmp_path, first, trials):
    for number in range(first, first + trials):
        sealed_again(whole, tmp_path / str(number) / "small", tmp_path / "out", random.Random(number))


# ---- A run that is taken up again ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    run = small_run(data=write_tokens(folder / "data"), steps=6)
    outcome = train(run, quiet_execution(checkpoint_every=2), out=folder / "run")
    return run, folder / "run", outcome.result["val_loss"]


def assert_the_same_loss_again(trained, path: Path, draw: random.Random) -> None:
    run, before, loss = trained
    shutil.copytree(before, path)
    if draw.random() < 0.5:  # as if it had been killed before its end
        for name in ("seal.json", "experiment_result.json"):
            (path / name).unlink()
        RunDirectory(path).write_status("running", step=6)
    inner = sorted(
        file for file in path.rglob("*") if file.is_file() and file.stat().st_size and file.parent.name != "best"
    )
    injured(draw.choice(inner), draw)
    said = [str(path)]
    try:
        assert train(run, quiet_execution(checkpoint_every=2), out=path).result["val_loss"] == loss
    except UserError as error:
        said = str(error).splitlines()
    assert said
    assert said[0].startswith(str(path))
    shutil.rmtree(path)


@pytest.mark.parametrize("first", [0, pytest.param(100, marks=pytest.mark.trial)])
def test_a_run_with_an_injured_file_gives_its_loss_again_or_refuses_in_a_line(trained, tmp_path, first):
    for number in range(first, first + (100 if first else 10)):
        try:
            assert_the_same_loss_again(trained, tmp_path / "run", random.Random(number))
        except Exception as error:
            raise AssertionError(f"trial {number}") from error
