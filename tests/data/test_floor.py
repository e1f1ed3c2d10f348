"""The floor of text against counting by hand, on exactly the windows that a run reports; and where it is kept."""

import itertools
import json
import math
import shutil
from collections import Counter

import numpy as np
import pytest

from oelm.core.floors import BIGRAM, UNIGRAM
from oelm.data import floor
from oelm.data.floor import BIGRAM_WEIGHT, KEPT, fitted, floor_here, floor_of
from oelm.data.prepare import prepare
from oelm.data.prepared import MANIFEST
from oelm.data.tokens import open_tokens
from oelm.run.training.run import train
from oelm.storage.files import DATA_FLOORS
from small_runs import quiet_execution, small_run


@pytest.fixture(scope="module")
def prepared_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared") / "stories"
    prepare("stories", out=folder, tokenizer="bpe:300", stories=200)
    return folder


@pytest.fixture
def prepared(prepared_once, tmp_path):
    return shutil.copytree(prepared_once, tmp_path / "stories")


def bare(folder, train, val):
    folder.mkdir()
    for name, tokens in (("train", train), ("val", val)):
        np.array(tokens, dtype="<u2").tofile(folder / f"{name}.bin")
    return open_tokens(folder)


def tables(found):
    return {name: found[name] for name in (UNIGRAM, BIGRAM)}


def by_hand(train, held_out, *, vocabulary, seq_len, sequences):
    """Token by token, from the definition: windows evenly spaced, each token after the first one predicted."""
    counts, pairs = Counter(train), Counter(itertools.pairwise(train))
    followed = Counter(train[:-1])
    available = (len(held_out) - 1) // seq_len
    wanted = min(sequences, available)
    losses = {UNIGRAM: [], BIGRAM: []}
    for member in range(wanted):
        start = member * available // wanted * seq_len
        for place in range(start + 1, start + seq_len + 1):
            before, token = held_out[place - 1], held_out[place]
            unigram = (counts[token] + 1) / (len(train) + vocabulary)
            after = pairs[before, token] / followed[before] if followed[before] else unigram
            losses[UNIGRAM].append(-math.log(unigram))
            losses[BIGRAM].append(-math.log(BIGRAM_WEIGHT * after + (1 - BIGRAM_WEIGHT) * unigram))
    return {name: sum(found) / len(found) for name, found in losses.items()}


@pytest.mark.parametrize(("split", "seq_len", "sequences"), [("val", 16, 5), ("val", 7, 10**6), ("tune", 32, 3)])
def test_both_tables_are_what_counting_by_hand_gives(prepared, monkeypatch, split, seq_len, sequences):
    """Also where the training tokens are counted in pieces: no pair across a border is lost or counted twice."""
    monkeypatch.setattr(floor, "CHUNK_TOKENS", 1000)
    data = open_tokens(prepared)
    asked = {"seq_len": seq_len, "sequences": sequences}
    train, held_out = data.splits["train"].tolist(), data.splits[split].tolist()
    expected = by_hand(train, held_out, vocabulary=data.vocabulary, **asked)
    assert tables(fitted(data, split=split, **asked)) == pytest.approx(expected, rel=1e-12)


def test_tokens_that_never_occurred_or_only_at_the_end_have_a_finite_loss(tmp_path):
    """The last training token is followed by nothing, the tokens 9 and 50256 occur nowhere."""
    train, val = [1, 2, 3, 1, 2, 4], [0] * 8 + [1, 2, 9, 4, 50256, 1, 3, 4, 2]
    data = bare(tmp_path / "bare", train, val)
    held_out = data.splits["val"].tolist()
    expected = by_hand(train, held_out, vocabulary=50257, seq_len=4, sequences=9)
    assert tables(fitted(data, split="val", seq_len=4, sequences=9)) == pytest.approx(expected, rel=1e-12)


def test_they_are_kept_beside_the_manifest_and_never_change_the_digest(prepared):
    before = {file.name: file.read_bytes() for file in prepared.iterdir() if file.is_file()}
    run = small_run(data=prepared, final_validation_sequences=4)
    losses = floor_of(open_tokens(prepared), run)
    after = {file.name: file.read_bytes() for file in prepared.iterdir() if file.is_file()}
    assert after.pop(DATA_FLOORS)
    assert after == before
    assert json.loads(after[MANIFEST])["digest"] == open_tokens(prepared).digest
    assert floor_here(run, digest=None) == losses


def test_what_is_kept_is_not_fitted_again_unless_it_is_damaged_or_of_other_data(prepared, monkeypatch):
    run, calls = small_run(data=prepared, final_validation_sequences=4), []
    monkeypatch.setattr(floor, "fitted", lambda *args, **windows: calls.append(windows) or fitted(*args, **windows))
    losses = floor_of(open_tokens(prepared), run)
    assert floor_of(open_tokens(prepared), run) == losses
    assert len(calls) == 1
    other = floor_of(open_tokens(prepared), small_run(data=prepared, final_validation_sequences=2))
    assert other != losses
    assert floor_of(open_tokens(prepared), run) == losses
    assert len(calls) == 2
    stored = json.loads((prepared / DATA_FLOORS).read_text())
    stored["floors"][0][UNIGRAM] = 0.001
    (prepared / DATA_FLOORS).write_text(json.dumps(stored))
    assert floor_of(open_tokens(prepared), run) == losses
    assert len(calls) == 3
    (prepared / DATA_FLOORS).write_bytes(b"\0")
    assert floor_of(open_tokens(prepared), run) == losses
    assert len(calls) == 4


def test_a_reader_writes_nothing_and_knows_nothing_of_data_that_are_not_here(prepared, tmp_path):
    run = small_run(data=prepared, final_validation_sequences=3)
    data = open_tokens(prepared)
    found = floor_here(run, digest=data.digest)
    assert found == fitted(data, split="val", seq_len=16, sequences=3)
    assert not (prepared / DATA_FLOORS).exists()
    assert floor_here(run, digest="of other data") == {}
    assert floor_here(small_run(data=tmp_path / "missing"), digest=None) == {}


def test_a_folder_that_is_not_ours_stays_as_it_is(tmp_path):
    data = bare(tmp_path / "bare", [1, 2, 3] * 40, [1, 2, 3] * 40)
    assert floor_of(data, small_run(data=tmp_path / "bare"))
    assert not (tmp_path / "bare" / DATA_FLOORS).exists()


def test_a_probe_has_the_two_levels_of_a_guess():
    probe = "probe:recall?pairs=2,4&length=32"
    found = floor_here(small_run().model_copy(update={"data": probe}), digest=None)
    assert found == {"chance_blind": 1 / 64, "chance_in_context": {"2": 0.5, "4": 0.25}}


def test_a_run_stores_the_floor_of_the_windows_that_it_reports(prepared, tmp_path):
    """Of the tuning split its own, other than that of the final one."""
    found = {}
    for split in ("val", "tune"):
        given = {"steps": 2, "final_validation_sequences": 4, "validation_sequences": 4, "validation_split": split}
        run = small_run(data=prepared, **given)
        run = run.model_copy(update={"model": run.model.model_copy(update={"vocabulary": 300})})
        found[split] = train(run, quiet_execution(), out=tmp_path / split).result
        expected = fitted(open_tokens(prepared), split=split, seq_len=16, sequences=4)
        assert {name: found[split][name] for name in KEPT} == expected
    assert found["val"][UNIGRAM] != found["tune"][UNIGRAM]
