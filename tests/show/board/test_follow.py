"""A metric file is followed from where reading stopped, in bounded memory, whatever happens to it."""

import json
import os

import pytest

from oelm.run.directory import RunDirectory
from oelm.show.board.follow import CHECKED_BYTES, POINTS, TRAINING, VALIDATION, Follower


def record(step, loss=None, **more):
    return {"step": step, "tokens": 10 * step, "seconds": step / 2, "train_loss": loss or 1 / (1 + step)} | more


def validation(step, loss):
    return {"step": step, "tokens": 10 * step, "seconds": step / 2, "val_loss": loss}


@pytest.fixture
def directory(tmp_path):
    return RunDirectory(tmp_path)


@pytest.fixture
def follower(directory):
    return Follower(directory.metrics_file, TRAINING)


def steps(follower):
    return list(follower.series.steps)


def test_only_what_is_new_is_read(directory, follower, monkeypatch):
    for step in range(1, 200):
        directory.append_metrics(record(step))
    follower.poll()
    size = directory.metrics_file.stat().st_size
    read = []
    pread = os.pread

    def counting(*arguments):
        found = pread(*arguments)
        read.append(len(found))
        return found

    directory.append_metrics(record(200))
    monkeypatch.setattr("oelm.show.board.follow.os.pread", counting)
    follower.poll()
    assert steps(follower)[-1] == 200
    new = directory.metrics_file.stat().st_size - size
    assert sum(read) <= new + 2 * CHECKED_BYTES
    read.clear()
    follower.poll()
    assert read == []


def test_a_torn_line_waits_for_its_end(directory, follower):
    directory.append_metrics(record(1))
    line = json.dumps(record(2)) + "\n"
    with open(directory.metrics_file, "a") as stream:
        stream.write(line[:20])
    follower.poll()
    assert steps(follower) == [1]
    with open(directory.metrics_file, "a") as stream:
        stream.write(line[20:])
    follower.poll()
    assert steps(follower) == [1, 2]


def test_a_file_that_is_another_is_read_anew(directory, follower, tmp_path):
    """One that was cut, replaced by a longer one, rewritten in place."""
    lines = {at: "".join(json.dumps(record(step)) + "\n" for step in range(at, at + 3)) for at in (7, 10, 20)}
    for step in range(1, 50):
        directory.append_metrics(record(step))
    follower.poll()
    directory.metrics_file.write_text(lines[7])
    follower.poll()
    assert steps(follower) == [7, 8, 9]
    (tmp_path / "other").write_text(lines[10])
    os.replace(tmp_path / "other", directory.metrics_file)
    follower.poll()
    assert steps(follower) == [10, 11, 12]
    with open(directory.metrics_file, "r+") as stream:
        stream.write(lines[20])
        stream.write(json.dumps(record(23)) + "\n")
    follower.poll()
    assert steps(follower) == [20, 21, 22, 23]


def test_a_file_that_is_gone_is_forgotten(directory, follower):
    directory.append_metrics(record(1))
    follower.poll()
    directory.metrics_file.unlink()
    version = follower.version
    follower.poll()
    assert steps(follower) == []
    assert follower.version > version


def test_a_run_taken_up_again_continues_from_there(directory, follower):
    for step in (1, 2, 3, 4):
        directory.append_metrics(record(step, 5.0))
    follower.poll()
    for step in (3, 4, 5):
        directory.append_metrics(record(step, 4.0))
    follower.poll()
    points = list(follower.series.points("train_loss"))
    assert [point[0] for point in points] == [1, 2, 3, 4, 5]
    assert [point[-1] for point in points] == [5.0, 5.0, 4.0, 4.0, 4.0]


def test_a_long_stream_keeps_a_bounded_number_of_points_and_its_last(directory, follower):
    lines = "".join(json.dumps(record(step)) + "\n" for step in range(1, 20_002))
    directory.metrics_file.write_text(lines)
    follower.poll()
    kept = steps(follower)
    assert POINTS // 2 <= len(kept) <= POINTS + 1
    assert kept[-1] == 20_001
    stride = follower.series.stride
    assert all(step % stride == 0 for step in kept[:-1])


def test_read_at_once_or_line_by_line_the_same_steps_are_kept(directory, follower):
    other = Follower(directory.metrics_file, TRAINING)
    for step in range(1, 1500):
        directory.append_metrics(record(step))
        if step % 7 == 0:
            follower.poll()
    follower.poll()
    other.poll()
    assert steps(follower) == steps(other)
    assert list(follower.series.points("train_loss")) == list(other.series.points("train_loss"))


def test_the_version_grows_with_what_is_read_and_with_nothing_else(directory, follower):
    versions = [follower.version]
    for step in (1, 2):
        directory.append_metrics(record(step))
        follower.poll()
        versions.append(follower.version)
    assert len(set(versions)) == 3
    follower.poll()
    directory.append_metrics(validation(3, 2.5))  # of the other kind
    follower.poll()
    assert follower.version == versions[-1]


def test_a_last_point_that_is_not_kept_gives_way(directory, follower):
    for step in range(1, 2 * POINTS + 2):
        directory.append_metrics(record(step))
    follower.poll()
    last = steps(follower)[-1]
    assert last == 2 * POINTS + 1
    directory.append_metrics(record(last + 1))
    follower.poll()
    assert last not in steps(follower)


def test_what_is_no_record_is_left_out(directory, follower):
    whole = json.dumps(record(1)) + "\n"
    bad = [
        "{}",
        "[1]",
        "null",
        '{"step": -1}',
        '{"step": true}',
        '{"step": 1e9, "train_loss": 1}',
        "{" * 5000,
        "xx",
        "",
    ]
    bad.append(json.dumps(record(2) | {"train_loss": "text"}))
    directory.metrics_file.write_text(whole + "\n".join(bad) + "\n")
    follower.poll()
    assert [point[0] for point in follower.series.points("train_loss")] == [1]


def test_a_line_without_end_does_not_fill_the_memory(directory, follower):
    directory.metrics_file.write_bytes(b"x" * 3_000_000 + b"\n" + json.dumps(record(3)).encode() + b"\n")
    follower.poll()
    assert steps(follower) == [3]


def test_training_and_validation_are_apart(directory, follower):
    directory.append_metrics(record(5))
    directory.append_metrics(validation(5, 2.5))
    of_validation = Follower(directory.metrics_file, VALIDATION)
    follower.poll()
    of_validation.poll()
    assert [point[0] for point in follower.series.points("train_loss")] == [5]
    assert list(of_validation.series.points("val_loss")) == [(5, 50.0, 2.5, 2.5)]
    assert list(of_validation.series.points("accuracy")) == []


def test_a_link_in_the_place_of_the_file_is_not_followed(directory, follower, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text(json.dumps(record(1)) + "\n")
    directory.metrics_file.symlink_to(secret)
    follower.poll()
    assert steps(follower) == []


def test_a_pipe_in_the_place_of_the_file_holds_nobody_up(directory, follower):
    os.mkfifo(directory.metrics_file)
    follower.poll()
    assert steps(follower) == []
