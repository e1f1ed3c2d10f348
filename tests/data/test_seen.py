"""Text that is reported and trained on: found passage by passage in the tokens, as a search by hand finds it."""

import json

import numpy as np
import pytest

from oelm.core.floors import SEEN
from oelm.data import floor
from oelm.data.floor import PASSAGE, floor_here, floor_of, share_in_train
from oelm.data.prepare import prepare
from oelm.data.tokens import open_tokens
from oelm.storage.files import DATA_FLOORS
from small_runs import small_run


def by_hand(train, held_out, starts, length):
    known = {tuple(train[place : place + PASSAGE]) for place in range(len(train) - PASSAGE + 1)}
    passages = [
        tuple(held_out[place : place + PASSAGE])
        for start in starts
        for place in range(start, min(start + length, len(held_out) - PASSAGE + 1))
    ]
    return sum(each in known for each in passages) / len(passages) if passages else 0.0


@pytest.mark.parametrize("chunk", [7, 100, 1 << 22])
@pytest.mark.parametrize(("starts", "length"), [([0], 300), ([0, 64, 200], 16), ([280], 64), ([], 8)])
def test_the_share_is_what_a_search_by_hand_finds(monkeypatch, chunk, starts, length):
    """Of five words, so that passages begin alike; a third of what is reported was copied into train, across chunks."""
    monkeypatch.setattr(floor, "CHUNK_TOKENS", chunk)
    draw = np.random.default_rng(0)
    held_out = draw.integers(0, 5, 300).astype("<u2")
    train = np.concatenate([draw.integers(0, 5, 190), held_out[50:150], draw.integers(0, 5, 33)]).astype("<u2")
    expected = by_hand(train.tolist(), held_out.tolist(), starts, length)
    assert share_in_train(train, held_out, starts, length) == expected
    if (starts, length) == ([0], 300):
        assert expected == (100 - PASSAGE + 1) / (300 - PASSAGE + 1)


def test_text_that_is_shorter_than_a_passage_has_none():
    tokens = np.arange(PASSAGE - 1, dtype="<u2")
    assert share_in_train(tokens, tokens, [0], 8) == 0.0


def leaky(folder, *, copied):
    """Words at random, of which some held-out documents are also inside documents of train."""
    draw = np.random.default_rng(1)
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "ran", "home", "fast", "with", "its", "small", "red", "hat"]
    documents = [" ".join(draw.choice(words, 200)) for _ in range(60)]
    held_out = documents[40:50]
    parts = {"train": [*documents[:40], *(f"so {each} it was" for each in held_out[:copied])], "val": held_out}
    folder.mkdir()
    for name, texts in (parts | {"tune": documents[50:]}).items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in texts))
    prepare(str(folder), out=folder / "data", tokenizer="bpe:300")
    return folder / "data"


def test_documents_inside_documents_of_train_are_found_where_whole_ones_are_not(tmp_path):
    """The manifest counts whole documents, of which none is in train; every run stores the share of its windows."""
    for copied, low, high in ((0, 0.0, 0.0), (5, 0.3, 0.55), (10, 0.6, 1.0)):
        data = leaky(tmp_path / str(copied), copied=copied)
        manifest = json.loads((data / "manifest.json").read_text())
        assert manifest["splits"]["val"]["also_in_train"] == 0
        run = small_run(data=data, final_validation_sequences=10**6)
        share = floor_of(open_tokens(data), run)[SEEN]
        assert low <= share <= high
        assert floor_here(run, digest=None)[SEEN] == share
        assert json.loads((data / DATA_FLOORS).read_text())["floors"][0][SEEN] == share


def test_short_documents_count_as_wholes(tmp_path):
    """As prepared: a third of the held-out ones stand in train, and none of them has as many tokens as a passage."""
    texts = [f"a short document, the one with the number {number}" for number in range(30)]
    for name, some in (("train", texts[:20]), ("val", texts[18:24]), ("tune", texts[24:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in some))
    prepare(str(tmp_path), out=tmp_path / "data", tokenizer="bpe:300")
    run = small_run(data=tmp_path / "data", final_validation_sequences=2)
    assert floor_of(open_tokens(tmp_path / "data"), run)[SEEN] == 2 / 6
