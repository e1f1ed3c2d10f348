"""Held-out text that also stands in train is counted, in bounded memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from oelm.data import prepare as module
from oelm.data.prepare import prepare
from oelm.data.stories import stories

TEXTS = list(stories(3, 60))


def written(folder: Path, **parts: list[str]) -> Path:
    folder.mkdir()
    for name, texts in parts.items():
        (folder / f"{name}.txt").write_text("\n<|endoftext|>\n".join(texts))
    return folder


def also_in_train(tmp_path: Path, **parts: list[str]) -> dict[str, int]:
    source = written(tmp_path / "source", **parts)
    splits = prepare(str(source), out=tmp_path / "out", tokenizer="bpe:300")["splits"]
    return {name: split["also_in_train"] for name, split in splits.items()}


def test_documents_of_validation_that_are_in_train_are_counted(tmp_path):
    found = also_in_train(tmp_path, train=TEXTS[:50], tune=TEXTS[50:54], val=[*TEXTS[:3], *TEXTS[54:]])
    assert found == {"train": 0, "tune": 0, "val": 3}


def test_text_held_out_of_train_is_nowhere_in_it(tmp_path):
    assert set(also_in_train(tmp_path, train=[*TEXTS, *TEXTS]).values()) == {0}


@pytest.mark.parametrize(("most", "counted"), [(4, 4), (100, 10)])
def test_only_so_many_documents_are_remembered(tmp_path, monkeypatch, most, counted):
    monkeypatch.setattr(module, "MOST_DOCUMENTS", most)
    assert also_in_train(tmp_path, train=TEXTS[:50], tune=TEXTS[50:54], val=TEXTS[:10])["val"] == counted
