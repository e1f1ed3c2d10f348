"""Preparing sentences: whole or absent, the same bytes again, and a digest that names data and encoder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess

import numpy as np
import pytest

from oelm.data.folders import check_digests
from oelm.data.prepare import Preparation, prepare
from oelm.data.prepare_sentences import prepare_sentences
from oelm.data.sentences import open_sentences
from oelm.machine.errors import UserError
from sentence_sources import NLI, json_lines, nli_folder, pairs, table
from small_encoders import TYPES, encoder_folder
from small_runs import oelm_command

KILLED = """
import os, signal, sys
from pathlib import Path
from oelm.storage import whole_folder
from oelm.data import prepare_sentences as module

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

source, encoder, out, moment = sys.argv[1:]
if moment == "fsync_folder":
    whole_folder.fsync_folder = die
else:
    setattr(module, moment, die)
module.prepare_sentences(source, task="pairs", out=Path(out), encoder=encoder, max_length=24)
"""


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return encoder_folder(tmp_path_factory.mktemp("encoders") / "bert")


@pytest.fixture(scope="module")
def nli(tmp_path_factory):
    return nli_folder(tmp_path_factory.mktemp("sources") / "nli", test=12)


def made(source, encoder, out, **settings):
    return prepare_sentences(
        str(source), out=out, encoder=str(encoder), **({"task": "pairs", "max_length": 24} | settings)
    )


def decoded(data, split):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(data.tokenizer_folder / "tokenizer.json"))
    examples = data.splits[split]
    for index in range(len(examples)):
        ids, second = examples.example(index), examples.seconds[index]
        yield tokenizer.decode(ids[:second]), tokenizer.decode(ids[second:]), data.labels[examples.labels[index]]


def test_examples_round_trip_in_the_order_of_the_source(tmp_path, nli, bert):
    made(nli, bert, tmp_path / "out", max_length=64)
    data = open_sentences(tmp_path / "out")
    assert list(decoded(data, "val")) == pairs(30, seed=1)
    assert sorted([*decoded(data, "train"), *decoded(data, "tune")]) == sorted(pairs(120, seed=0))


def test_the_manifest_says_what_is_there(tmp_path, bert):
    table(tmp_path / "in" / "train.tsv", [*pairs(90), ("a cat", "a dog", "-"), ("", "a dog", "neutral")])
    table(tmp_path / "in" / "tune.tsv", pairs(9, seed=1))
    table(tmp_path / "in" / "val.tsv", [*pairs(3, seed=2), *pairs(4)])
    manifest = made(tmp_path / "in", bert, tmp_path / "out", max_length=11)
    assert json.loads((tmp_path / "out" / "manifest.json").read_text()) == manifest
    assert (manifest["kind"], manifest["format_version"], manifest["task"]) == ("sentences", 1, "pairs")
    train = manifest["source"]["train"]
    assert (train["examples"], train["unlabelled_dropped"], train["empty_dropped"]) == (92, 1, 1)
    entry = manifest["splits"]["train"]
    assert entry["examples"] == 90
    assert entry["labels"] == dict.fromkeys(NLI, 30)
    assert entry["truncated"] == sum(len(f"{a} {b}".split()) > 8 for a, b, _ in pairs(90)) > 0
    assert [manifest["splits"][split]["also_in_train"] for split in ("train", "tune", "val")] == [0, 0, 4]
    assert manifest["split_rule"] == "given by the source"
    assert manifest["encoder"]["model_type"] == "bert"
    for split, entry in manifest["splits"].items():
        assert (tmp_path / "out" / f"{split}.ids.bin").stat().st_size == 2 * entry["tokens"]


def test_the_same_command_gives_the_same_bytes_whatever_the_batches(tmp_path, nli, bert, monkeypatch):
    first = made(nli, bert, tmp_path / "a")
    monkeypatch.setattr("oelm.data.prepare_sentences.BATCH_EXAMPLES", 7)
    second = made(nli, bert, tmp_path / "b")
    assert {**first, "created": ""} == {**second, "created": ""}


def test_the_digest_names_tokens_labels_and_encoder(tmp_path, nli, bert):
    digest = made(nli, bert, tmp_path / "a")["digest"]
    moved = shutil.copytree(bert, tmp_path / "moved")
    assert made(nli, moved, tmp_path / "b")["digest"] == digest
    (moved / "config.json").write_text((moved / "config.json").read_text() + "\n")
    relabelled = nli_folder(tmp_path / "relabelled", test=12)
    table(relabelled / "test.tsv", [(a, b, NLI[-1 - NLI.index(label)]) for a, b, label in pairs(12, seed=2)])
    others = {
        made(nli, moved, tmp_path / "c")["digest"],
        made(relabelled, bert, tmp_path / "d")["digest"],
        made(nli, bert, tmp_path / "e", max_length=16)["digest"],
        made(nli, bert, tmp_path / "f", train_examples=50)["digest"],
    }
    assert len(others | {digest}) == 5


@pytest.mark.parametrize("model_type", TYPES)
def test_every_family_is_prepared_and_read(tmp_path, nli, model_type):
    encoder = encoder_folder(tmp_path / "encoder", model_type)
    made(nli, encoder, tmp_path / "out", max_length=64)
    data = open_sentences(tmp_path / "out")
    check_digests(data)
    assert data.splits["train"].lengths.max() <= 64


def test_one_sentence_and_a_vocabulary_above_65536(tmp_path):
    encoder = encoder_folder(tmp_path / "large")
    config = json.loads((encoder / "config.json").read_text()) | {"vocab_size": 100_000}
    (encoder / "config.json").write_text(json.dumps(config))
    rows = [{"sentence": f"the cat {number}", "label": number % 2} for number in range(60)]
    json_lines(tmp_path / "in" / "train.jsonl", rows)
    json_lines(tmp_path / "in" / "dev.jsonl", rows[:5])
    made(tmp_path / "in", encoder, tmp_path / "out", task="sentences")
    data = open_sentences(tmp_path / "out")
    assert data.splits["train"].ids.dtype == np.dtype("<u4")
    assert data.labels == ("0", "1")
    assert np.array_equal(data.splits["val"].seconds, data.splits["val"].lengths)


def test_the_usual_length_is_128_or_what_the_encoder_takes(tmp_path, nli):
    for positions, expected in ((300, 128), (40, 40)):
        encoder = encoder_folder(tmp_path / f"{positions}", positions=positions)
        manifest = made(nli, encoder, tmp_path / f"out-{positions}", max_length=None)
        assert manifest["facts"]["seq_len"] == expected


def test_text_and_sentences_replace_each_other_only_by_force(tmp_path, nli, bert):
    made(nli, bert, tmp_path / "out")
    text = {"stories": 300, "tokenizer": "bpe:300"}
    with pytest.raises(UserError, match="contains prepared sentences, not text"):
        prepare("stories", out=tmp_path / "out", **text)
    prepare("stories", out=tmp_path / "out", force=True, **text)
    with pytest.raises(UserError, match="contains prepared text, not sentences"):
        made(nli, bert, tmp_path / "out")
    made(nli, bert, tmp_path / "out", force=True)
    check_digests(open_sentences(tmp_path / "out"))


def test_progress_counts_every_example_and_byte(tmp_path, nli, bert):
    told: list[Preparation] = []
    made(nli, bert, tmp_path / "out", progress=told.append)
    assert told[0].stage == "reading"
    assert told[-1].stage == "prepared"
    assert told[-1].documents == 162
    assert told[-1].unit == "examples"
    header = len("premise\thypothesis\tlabel\n")
    assert told[-1].bytes_read == told[-1].total_bytes - 3 * header


def test_bad_data_leaves_nothing_behind(tmp_path, bert):
    nli_folder(tmp_path / "in")
    table(tmp_path / "in" / "test.tsv", [("a", "b", "-")])
    with pytest.raises(UserError, match=r"test\.tsv: no labelled examples for test"):
        made(tmp_path / "in", bert, tmp_path / "out")
    with pytest.raises(UserError, match="max-length 5"):
        made(tmp_path / "in", bert, tmp_path / "out", max_length=5)
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize("moment", ["encoded_splits", "publish_folder", "fsync_folder"])
def test_a_killed_preparation_leaves_nothing_that_looks_whole(tmp_path, python_command, nli, bert, moment):
    out = tmp_path / "out"
    killed = subprocess.run(**python_command(KILLED, nli, bert, out, moment))
    assert killed.returncode == -signal.SIGKILL
    assert not out.exists()
    made(nli, bert, out)
    check_digests(open_sentences(out))
    assert os.listdir(tmp_path) == ["out"]


def test_a_full_disk_is_explained_and_leaves_nothing(nli, bert, mounted):
    disk = mounted("size=16k")
    with pytest.raises(UserError, match="disk full: needs"):
        made(nli, bert, disk / "out")
    assert os.listdir(disk) == []


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_command_prepares_a_known_task(tmp_path, bert):
    for seed, (name, count) in enumerate({"mnli/train": 90, "mnli/dev_matched": 30, "xnli/dev-zh": 12}.items()):
        table(tmp_path / "nli" / f"{name}.tsv", pairs(count, seed=seed))
    out = tmp_path / "da ta"
    arguments = ("prepare", "xnli", "--source", str(tmp_path / "nli"), "--encoder", str(bert), "--language", "zh")
    done = oelm_command(*arguments, "--max-length", "16", "--train-examples", "60", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "60 examples" in done.stdout
    assert "truncated" in done.stdout
    data = open_sentences(out)
    assert (data.task, data.language, len(data.splits["train"])) == ("xnli", "zh", 60)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("xnli", "--source", "."), "give its folder or hub name with --encoder"),
        (("xnli", "--encoder", "x", "--tokenizer", "gpt2"), "--tokenizer: cannot be combined with a task"),
        (("stories", "--encoder", "x"), "--encoder: is for xnli, mnli, sst2, or for a folder of sentences with --task"),
        (("stories", "--train-examples", "3"), "--train-examples: is for xnli"),
        (("nowhere", "--task", "pairs", "--encoder", "x"), "nowhere: no such folder"),
    ],
)
def test_options_that_do_not_go_together_are_one_line(tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    done = oelm_command("prepare", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_real_data(tmp_path, shared_data, bert):
    manifest = prepare_sentences(
        "xnli", source_path=shared_data, language="en", out=tmp_path / "out", encoder=str(bert), train_examples=2_000
    )
    assert {split: entry["examples"] for split, entry in manifest["splits"].items()} == {
        "train": 2_000, "tune": 9_815, "val": 2_490, "test": 5_010,
    }  # fmt: skip
    check_digests(open_sentences(tmp_path / "out"))


# ---- CSV as published, other encodings, empty files -----------------------------------------------------------------


def ag_news(folder, *, encoding: str = "utf-8"):
    """Train and test without a header, classes 1 to 4, and the list of their names."""
    folder.mkdir()
    for name, count in (("train", 200), ("test", 40)):
        rows = [
            f'"{1 + n % 4}","{first}, once","{second} ""{n}"" café"'
            for n, (first, second, _) in enumerate(pairs(count))
        ]
        (folder / f"{name}.csv").write_bytes("\n".join(rows).encode(encoding))
    (folder / "classes.txt").write_text("World\nSports\nBusiness\nSci/Tech\n")
    return folder


def test_ag_news_is_prepared_as_published(bert, tmp_path):
    manifest = made(ag_news(tmp_path / "ag_news"), bert, tmp_path / "out", task="sentences")
    assert manifest["labels"] == ["1", "2", "3", "4"]
    counts = {name: split["examples"] for name, split in manifest["splits"].items()}
    assert sum(counts[name] for name in ("train", "tune", "val")) == 200
    assert counts["test"] == 40
    assert counts["tune"] >= 5
    assert counts["val"] >= 5
    assert manifest["split_rule"].startswith("tune and val are held out of train by the hash of the first text")
    assert all(split["also_in_train"] == 0 for name, split in manifest["splits"].items() if name in ("tune", "val"))


def test_the_encoding_is_kept_and_changes_nothing_else(bert, tmp_path):
    plain = made(ag_news(tmp_path / "a"), bert, tmp_path / "out-a", task="sentences")
    other = made(
        ag_news(tmp_path / "b", encoding="gb18030"), bert, tmp_path / "out-b", task="sentences", encoding="gb18030"
    )
    assert (plain["encoding"], other["encoding"]) == ("utf-8", "gb18030")
    assert plain["digest"] == other["digest"]


@pytest.mark.parametrize("name", ["train.csv", "train.tsv", "train.jsonl", "val.tsv"])
def test_an_empty_file_of_examples_is_called_empty(bert, tmp_path, name):
    folder = nli_folder(tmp_path / "nli")
    if name.startswith("train"):
        (folder / "train.tsv").unlink()
    (folder / name).write_bytes(b"")
    with pytest.raises(UserError) as refused:
        made(folder, bert, tmp_path / "out")
    assert str(refused.value) == f"{folder / name}: empty"


def test_preparing_again_does_nothing_and_other_settings_are_refused_until_forced(tmp_path, nli, bert):
    out, told = tmp_path / "out", []
    first = made(nli, bert, out)
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*")}
    assert made(nli, bert, out, progress=told.append) == first
    assert [progress.stage for progress in told] == ["already prepared"]
    for change, said in (
        ({"max_length": 30}, r"contains another dataset \(max_length is 24, not 30\)"),
        ({"train_examples": 40}, "train_examples is the default, not 40"),
    ):
        with pytest.raises(UserError, match=said):
            made(nli, bert, out, **change)
    assert {file: file.stat().st_mtime_ns for file in out.rglob("*")} == before
    assert made(nli, bert, out, train_examples=40, force=True)["digest"] != first["digest"]
    assert os.listdir(tmp_path) == ["out"]
