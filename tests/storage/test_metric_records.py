"""The metric stream: short ones exactly as written, long ones in bounded memory, bad lines nowhere."""

from __future__ import annotations

import json
import os
import random
import tracemalloc
from pathlib import Path

import pytest

from oelm.analysis.arm_summaries import mean_curve, reached, runs_by_arm
from oelm.analysis.summary import findings_of
from oelm.core.config import MOST_RECORDED_HEADS
from oelm.execution.table import progress_of
from oelm.models.heads.kinds import NAMES
from oelm.run.directory import RunDirectory
from oelm.storage.metric_records import MOST_LINE_BYTES, MOST_POINTS, last_head_scores, last_record, read_records
from oelm.study.plan import planned
from oelm.study.shelf import Shelf
from stored_runs import facts_of, sealed_again, small_study, store_study

GOOD = {"step": 3, "tokens": 30, "seconds": 0.3, "train_loss": 2.5, "learning_rate": 1e-3}


def place(step: int) -> dict:
    return {"step": step, "tokens": 10 * step, "seconds": 0.1 * step}


def trained(step: int, **changes: object) -> dict:
    return place(step) | {"train_loss": 3.0 - step * 1e-6} | changes


def validated(step: int, loss: float) -> dict:
    return place(step) | {"val_loss": loss, "perplexity": 2.0**loss}


def stream(folder: Path, *records: dict) -> Path:
    file = folder / "metrics.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def everything(file: Path) -> list[dict]:
    """As if nothing were ever too long."""
    latest = {}
    for line in file.read_text().splitlines():
        record = json.loads(line)
        latest[record["step"], "val_loss" in record] = record
    return [latest[key] for key in sorted(latest)]


def steps(records: list[dict]) -> list[int]:
    return [record["step"] for record in records]


def test_a_short_stream_is_kept_as_it_is(tmp_path):
    first = [trained(step) for step in range(1, MOST_POINTS + 1)]
    again = [trained(step, train_loss=1.0) for step in range(4000, MOST_POINTS + 1)]
    looks = [validated(step, 5.0 - 1e-4 * step) for step in range(1, MOST_POINTS + 1)]
    file = stream(tmp_path, *first, *looks, *again)
    assert read_records(file, target_loss=4.7, also={1, 2}) == everything(file)
    assert len(everything(file)) == 2 * MOST_POINTS


def test_which_steps_of_a_long_stream_are_kept_depends_on_its_steps_alone(tmp_path):
    """Not on resumes, nor on the order of the lines."""
    written = [trained(step) for step in range(1, 20_001)]
    kept = read_records(stream(tmp_path, *written))
    assert steps(kept) == list(range(8, 20_001, 8))
    resumed = read_records(stream(tmp_path, *written[:15_000], *written[9_000:]))
    random.Random(0).shuffle(written)
    assert resumed == kept
    assert read_records(stream(tmp_path, *written)) == kept


@pytest.mark.parametrize("count", [4097, 20_001])
def test_the_last_step_of_a_long_stream_is_kept(tmp_path, count):
    kept = read_records(stream(tmp_path, *map(trained, range(1, count + 1))))
    assert kept[-1] == trained(count)
    assert len(kept) <= MOST_POINTS + 1


def test_a_torn_last_line_of_a_long_stream_is_nobody(tmp_path):
    file = stream(tmp_path, *map(trained, range(1, 10_000)))
    with open(file, "a") as torn:
        torn.write('{"step": 10001, "tokens": 1')
    assert read_records(file)[-1] == trained(9_999)


@pytest.mark.parametrize("taken_up_again", [False, True])
def test_a_target_is_reached_where_the_whole_stream_reaches_it(tmp_path, taken_up_again):
    draw = random.Random(1)
    looks = [validated(step, round(5.0 - 1e-4 * step + draw.uniform(-0.01, 0.01), 6)) for step in range(1, 20_001)]
    again = [record | {"val_loss": record["val_loss"] + 1e-3} for record in looks[8_000:]] if taken_up_again else []
    file = stream(tmp_path, *looks, *again)
    whole = everything(file)
    for target in (4.0, 3.3333, 3.0001, 2.0):
        kept = read_records(file, target_loss=target)
        assert len(kept) <= MOST_POINTS + 3
        assert reached([kept], target, flops_per_token=1.0) == reached([whole], target, flops_per_token=1.0)


def test_a_run_taken_up_again_reaches_a_target_where_its_last_records_do(tmp_path):
    before = [validated(10, 5.0), validated(20, 2.9)]
    file = stream(tmp_path, *before, validated(10, 5.0), validated(20, 3.1), validated(30, 2.8))
    assert read_records(file, target_loss=3.0) == everything(file)


# ---- Bad lines -----------------------------------------------------------------------------------------------------

BAD_LINES = {
    "step as bool": b'{"step": true, "tokens": 1, "seconds": 1, "train_loss": 1}',
    "negative step": b'{"step": -4, "tokens": 1, "seconds": 1, "train_loss": 1}',
    "digits without end": b'{"step": 1' + b"0" * 3900 + b', "tokens": 1, "seconds": 1, "train_loss": 1}',
    "loss as list": b'{"step": 4, "tokens": 1, "seconds": 1, "train_loss": [1]}',
    "loss as text": b'{"step": 4, "tokens": 1, "seconds": 1, "train_loss": "1"}',
    "infinity": b'{"step": 4, "tokens": 1, "seconds": 1, "train_loss": 1e999}',
    "a sum without room": b'{"step": 4, "tokens": 1, "seconds": 1.5e308, "train_loss": 1.5e308}',
    "deep": b'{"step": 4, "x": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    "no object": b"[4]",
    "not JSON": b"\xff\xfe\x00{",
    "a line that is far too long": b'{"step": 4, "train_loss": 1, "x": ' + b"1" * 200_000 + b"}",
}


@pytest.mark.parametrize("bad", BAD_LINES.values(), ids=BAD_LINES)
def test_a_line_that_no_run_writes_is_left_out(tmp_path, bad):
    directory, good = RunDirectory(tmp_path), json.dumps(GOOD).encode()
    directory.metrics_file.write_bytes(bad + b"\n" + good + b"\n" + bad + b"\n")
    assert directory.metrics(target_loss=2.0) == [GOOD]
    directory.metrics_file.write_bytes(good + b"\n" + bad)
    assert directory.metrics() == [GOOD]
    assert directory.last_metrics() in ([GOOD] if len(bad) < 4000 else [GOOD, None])
    assert progress_of(directory, 10).steps == 10


def test_a_perplexity_may_be_large_or_missing(tmp_path):
    large, missing = validated(1, 690.0) | {"perplexity": 1e299}, validated(2, 800.0) | {"perplexity": None}
    assert read_records(stream(tmp_path, large, missing)) == [large, missing]


TABLES = {"previous": [[0.1, 0.9], [0.2, 0.3]], "induction": [[0.0, 0.1], [0.75, 0.0]]}


def test_of_head_scores_the_largest_of_each_name_is_kept_and_the_last_tables_are_found(tmp_path):
    earlier = validated(1, 3.0) | {"head_scores": {"previous": [[0.05]], "induction": [[0.04]]}}
    last = validated(2, 2.0) | {"head_scores": TABLES}
    file = stream(tmp_path, earlier, trained(1), last, trained(2))
    kept = read_records(file)
    assert kept[1] == validated(1, 3.0) | {"head_scores.previous": 0.05, "head_scores.induction": 0.04}
    assert kept[3] == validated(2, 2.0) | {"head_scores.previous": 0.9, "head_scores.induction": 0.75}
    assert last_head_scores(file) == TABLES
    assert last_record(file, "val_loss") == kept[3]
    assert last_head_scores(stream(tmp_path, validated(1, 3.0), trained(1))) is None
    assert last_head_scores(tmp_path / "nothing") is None


def test_the_scores_of_a_thousand_heads_can_be_read_back(tmp_path):
    """As many as a run may record, in the longest form."""
    table = [[-1023.123] for _ in range(MOST_RECORDED_HEADS)]
    record = validated(2, 2.0) | {"head_scores": dict.fromkeys(NAMES, table)}
    file = stream(tmp_path, validated(1, 3.0), record)
    assert len(json.dumps(record)) < MOST_LINE_BYTES
    assert last_head_scores(file) == record["head_scores"]
    assert len(read_records(file)) == 2


@pytest.mark.parametrize("bad", [[], {"previous": [0.1]}, {"previous": [["x"]]}])
def test_head_scores_that_no_run_writes_are_left_out_with_their_record(tmp_path, bad):
    file = stream(tmp_path, validated(1, 3.0), validated(2, 2.0) | {"head_scores": bad})
    assert read_records(file) == [validated(1, 3.0)]


def test_the_accuracies_of_a_probe_are_kept_by_difficulty(tmp_path):
    good = validated(1, 3.0) | {"accuracy": 0.5, "accuracy_by_difficulty": {"4": 0.75, "8": 0.25}}
    bad = validated(2, 3.0) | {"accuracy_by_difficulty": {"4": "x"}}
    assert read_records(stream(tmp_path, good, bad)) == [good]


def test_something_else_in_the_place_of_the_file_holds_nobody_up(tmp_path):
    file = tmp_path / "metrics.jsonl"
    assert read_records(file) == []
    os.mkfifo(file)
    assert read_records(file) == []
    assert last_record(file, "train_loss") is None
    file.unlink()
    file.mkdir()
    assert read_records(file) == []
    assert last_record(file, "train_loss") is None


# ---- Memory --------------------------------------------------------------------------------------------------------


def peak_bytes(action) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_line_of_100_mb_without_an_end_takes_no_memory(tmp_path):
    file = stream(tmp_path, GOOD)
    os.truncate(file, 100_000_000)
    assert peak_bytes(lambda: read_records(file)) < 8e6
    assert read_records(file) == [GOOD]
    assert last_record(file, "train_loss") is None


LONG = 100_000


@pytest.fixture(scope="module")
def long_study(tmp_path_factory):
    """Two arms of three seeds, with a file of 100,000 lines for one seed of each."""
    training = {"steps": LONG, "batch_size": 4, "learning_rate": 1e-3}
    model = {"seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4}
    base = {"model": model, "training": training, "data": "data/small"}
    study = small_study(base=base, arms=["trained", "frozen_normal"], seeds=[0, 1, 2])
    folder = tmp_path_factory.mktemp("long")
    shelf = store_study(study, folder, lambda arm, seed, stage, point: 2.0 + 0.01 * seed)
    short = {arm: mean_curves(study, shelf, arm) for arm in study.arms}
    for file in folder.glob("*-s1-*/metrics.jsonl"):
        before = everything(file)
        stream(file.parent, *map(trained, range(1, LONG + 1)), *before)
        sealed_again(file.parent)
    return study, Shelf(folder), short


def mean_curves(study, shelf, arm):
    runs = runs_by_arm(study, planned(study, shelf, facts=facts_of(study)))[arm]
    return {name: mean_curve(runs.records(None), name) for name in ("train_loss", "val_loss")}


def test_beside_a_long_file_the_steps_of_the_short_ones_are_all_shown(long_study):
    study, shelf, short = long_study
    for arm in study.arms:
        assert mean_curves(study, shelf, arm) == short[arm]


def test_findings_of_100_000_lines_take_bounded_memory(long_study):
    """All of them at once would take 60 MB a run."""
    study, shelf, _ = long_study
    assert peak_bytes(lambda: findings_of(study, shelf)) < 25e6
