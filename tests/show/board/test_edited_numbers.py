"""A number whose run is not what its seal says is shown nowhere, whether or not anybody knows the study."""

import json
import os
import shutil
import time

import pytest
from board_server import served

from oelm.core.logarithms import exponential
from oelm.run.directory import RunDirectory
from oelm.show.board.state import Board
from oelm.show.board.watch import Watch
from oelm.study.shelf import read_stored
from stored_runs import small_study, store_study

FORGED = 2.25


def edit_result(directory, other):
    tree = json.loads(directory.result_file.read_text())
    directory.result_file.write_text(json.dumps(tree | {"val_loss": FORGED, "perplexity": exponential(FORGED)}))


def edit_a_digit_of_the_curve_and_hide_when(directory, other):
    """With the size and the time of change that the file had."""
    before = directory.metrics_file.stat()
    text = directory.metrics_file.read_text()
    at = text.index('"val_loss": ') + len('"val_loss": ')
    with open(directory.metrics_file, "r+") as stream:
        stream.write(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])
    os.utime(directory.metrics_file, ns=(before.st_atime_ns, before.st_mtime_ns))


def take_the_result_of_another(directory, other):
    shutil.copy(other.result_file, directory.result_file)


def take_all_of_another_but_the_config(directory, other):
    for file in (other.result_file, other.metrics_file, other.seal_file, other.environment_file, other.parameters_file):
        if file.exists():
            shutil.copy(file, directory.path)


def link_the_result_of_another(directory, other):
    directory.result_file.unlink()
    directory.result_file.symlink_to(other.result_file)


def edit_the_seal(directory, other):
    directory.seal_file.write_text(directory.seal_file.read_text().replace('"finished"', '"diverged"'))


def lose_the_seal(directory, other):
    directory.seal_file.unlink()
    edit_result(directory, other)


EDITS = [
    edit_result, edit_a_digit_of_the_curve_and_hide_when, take_the_result_of_another, link_the_result_of_another,
    take_all_of_another_but_the_config, edit_the_seal, lose_the_seal,
]  # fmt: skip


@pytest.fixture
def place(tmp_path, request):
    """The folder of all studies, that in which two runs are, and what their addresses begin with."""
    root = tmp_path / "runs"
    name = "nobody-declared-this"
    store_study(small_study(arms=["trained"], seeds=[0, 1]), root / name, lambda arm, seed, *_: 3.0 + seed)
    if getattr(request, "param", "undeclared") == "undeclared":
        return root, root / name, f"{name}/"
    for path in list((root / name).iterdir()):
        path.rename(root / path.name)
    (root / name).rmdir()
    return root, root, ""


def numbers_in(server, prefix, id, other):
    """Every number of a run that a page shows, and the states in which it shows it."""
    row = server.json("data/run", name=id)
    found = {"run": row["row"], "result": row["result"], "parts": row["parts"], "heads": row["heads"]}
    found["curves"] = [curve["points"] for curve in row["curves"].values()]
    found["counts"] = [count for count in row["counts"].values() if count]
    compared = server.json("data/compare", name=[id, other])["runs"][0]
    found["compare"], found["compared"] = compared["row"], [each["points"] for each in compared["curves"].values()]
    if prefix:
        study = prefix.rstrip("/")
        found["table"] = next(each for each in server.json("data/study", name=study)["rows"] if each["id"] == id)
        found["seeds"] = server.json("data/seeds", name=study, y="val_loss")["runs"][id]["points"]
        bands = server.json("data/curves", name=study, y="val_loss")["bands"]["trained"]["val_loss"]
        found["band"] = [point for point in bands["points"] if point[-1] > 1]
        (line,) = server.json("data/overview")["studies"]
        states = line["states"]
    else:
        rows = server.json("data/overview")["runs"]
        found["table"] = next(each for each in rows if each["id"] == id)
        states = {"damaged": sum(each["state"] == "damaged" for each in rows)}
    rows = {found.pop(key)["state"] for key in ("run", "compare", "table")} | {
        state for state in states if states[state]
    }
    return found, rows, row


@pytest.mark.parametrize(
    ("edit", "place"), [*((each, "undeclared") for each in EDITS), (EDITS[0], "single")], indirect=["place"]
)
def test_an_edited_run_has_no_number_on_any_page(place, edit):
    root, folder, prefix = place
    edited, other = (RunDirectory(path) for path in sorted(folder.iterdir()))
    ids = [f"{prefix}{each.path.name}" for each in (edited, other)]
    edit(edited, other)
    with served(Board(root)) as server:
        found, states, whole = numbers_in(server, prefix, *ids)
        assert [value for value in (*found["curves"], *found["compared"]) if value] == []
        assert {key: value for key, value in found.items() if value and key not in ("curves", "compared")} == {}
        assert "damaged" in states
        assert states <= {"damaged", "finished"}
        assert str(FORGED) not in json.dumps(whole["row"])
        assert whole["row"]["val_loss"] is None
        assert "damaged" in whole["row"]["error"]
        assert server.json("data/run", name=ids[1])["row"]["state"] == "finished"
        assert server.json("data/run", name=ids[1])["result"]["val_loss"] == 4.0


@pytest.mark.parametrize("edit", EDITS)
def test_a_run_that_is_edited_while_somebody_looks_loses_its_numbers_and_gets_them_back(place, edit, tmp_path):
    root, folder, prefix = place
    edited, other = (RunDirectory(path) for path in sorted(folder.iterdir()))
    ids = [f"{prefix}{each.path.name}" for each in (edited, other)]
    shutil.copytree(edited.path, tmp_path / "as it was")
    board = Board(root)
    watch = board.watch_of_run(ids[0])
    with watch.lock:
        before = {kind: watch.curve_of(ids[0], kind) for kind in ("val_loss", "train_loss")}
    assert watch.rows[ids[0]]["val_loss"] == 3.0
    assert before["val_loss"]
    edit(edited, other)
    version = watch.version
    with watch.lock:
        watch.refresh(at_once=ids[0])
        assert watch.version > version
        assert (watch.rows[ids[0]]["state"], watch.rows[ids[0]]["val_loss"]) == ("damaged", None)
        assert watch.curve_of(ids[0], "val_loss") == []
    shutil.rmtree(edited.path)
    shutil.copytree(tmp_path / "as it was", edited.path)
    with watch.lock:
        watch.refresh(at_once=ids[0])
        assert watch.rows[ids[0]]["val_loss"] == 3.0
        assert {kind: watch.curve_of(ids[0], kind) for kind in before} == before


def test_what_an_answer_has_no_time_to_check_has_no_number_and_is_checked_beside_it(place, monkeypatch):
    root, _, prefix = place
    monkeypatch.setattr("oelm.show.board.watch.PATIENCE", 0.0)
    board, name = Board(root), prefix.rstrip("/")
    watch = board.watch(name)
    with watch.lock:
        watch.refresh()
        assert {(row["state"], row["val_loss"]) for row in watch.rows.values()} == {("unchecked", None)}
        watch.follow_all("validation")
        assert all(not watch.curve_of(id, "val_loss") for id in watch.rows)
    deadline = time.monotonic() + 60
    while {row["state"] for row in watch.rows.values()} != {"finished"} and time.monotonic() < deadline:
        with watch.lock:
            watch.refresh()
        time.sleep(0.01)
    assert sorted(row["val_loss"] for row in watch.rows.values()) == [3.0, 4.0]
    assert all(watch.curve_of(id, "val_loss") for id in watch.rows)
    board.close()


def test_what_has_not_changed_is_checked_once(place, monkeypatch):
    root, folder, prefix = place
    read = []
    monkeypatch.setattr("oelm.show.board.glance.read_stored", lambda path: read.append(path) or read_stored(path))
    with served(Board(root)) as server:
        for _ in range(3):
            server.json("data/overview")
            for path in folder.iterdir():
                server.json("data/run", name=f"{prefix}{path.name}")
    assert sorted(read) == sorted(folder.iterdir())


def test_a_result_of_a_run_that_has_not_ended_is_not_shown(place):
    root, folder, prefix = place
    directory = RunDirectory(next(folder.iterdir()))
    directory.seal_file.unlink()
    directory.write_status("interrupted")
    with served(Board(root)) as server:
        found = server.json("data/run", name=f"{prefix}{directory.path.name}")
    assert found["row"]["state"] == "interrupted"
    assert found["result"] == {}


def test_looking_often_at_what_is_unchecked_reads_no_file(tmp_path, monkeypatch):
    store_study(small_study(arms=["trained"], seeds=[0, 1]), tmp_path / "small", lambda *_: 3.0)
    from oelm.show.board import glance, places

    found = places.runs_of(places.StudyPlace("small", tmp_path / "small", "small"))
    opened = []
    monkeypatch.setattr(glance, "read_object", lambda path: opened.append(path) or {})
    monkeypatch.setattr("oelm.show.board.watch.PATIENCE", 0.0)
    watch = Watch("small", lambda: found)
    watch.refresh()
    assert len(opened) == 2
    watch.refresh()
    assert len(opened) == 2
