"""Tasks and their division: which example is in which split, with which label, fixed by the texts alone."""

import json
import random
import re
from itertools import pairwise

import numpy as np
import pytest

from oelm.data import tasks as module
from oelm.data.prepare_sentences import divided, label_names, surveyed
from oelm.data.tasks import ENTAILMENT, SENTIMENT, open_task
from oelm.data.tokens import SPLITS
from oelm.machine.errors import UserError
from oelm.machine.installation import install_command
from sentence_sources import json_lines, nli_folder, pairs, sentence, table, written


def splits_of(source, *, train_examples=None):
    """Split -> its examples, as (texts, label name)."""
    surveys = {part: surveyed(source.parts[part]) for part in SPLITS if part in source.parts}
    names = label_names(source.task, surveys["train"])
    found = {}
    for part, division in divided(source, surveys, names, train_examples=train_examples).items():
        for example, at, label in zip(source.parts[part].read(), division.splits, division.labels, strict=True):
            if at >= 0:
                found.setdefault(SPLITS[at], []).append((example.texts, names[label]))
    return found


def own(folder, task="pairs"):
    return open_task(str(folder), task=task)


def nli_source(folder, **counts):
    """As published data lies in a folder: xnli/ and mnli/."""
    sizes = {"mnli/train_10k": 90, "mnli/dev_matched": 60, "xnli/dev-en": 30, "xnli/test-en": 30, **counts}
    for seed, (name, count) in enumerate(sizes.items()):
        table(folder / f"{name}.tsv", pairs(count, seed=seed))
    table(folder / "xnli" / "dev-zh.tsv", [("他 好", "我 好", "neutral"), ("我", "他", "entailment")])
    table(folder / "xnli" / "test-zh.tsv", [("他", "我", "contradiction")])
    return folder


def test_label_order_is_fixed():
    assert ENTAILMENT == ("entailment", "neutral", "contradiction")
    assert SENTIMENT == ("negative", "positive")


def test_xnli_trains_on_mnli_tunes_on_its_dev_set_and_reports_on_its_own(tmp_path):
    source = open_task("xnli", source_path=nli_source(tmp_path), language="zh")
    assert {part: found.place for part, found in source.parts.items()} == {
        "train": str(tmp_path / "mnli" / "train_10k.tsv"),
        "tune": str(tmp_path / "mnli" / "dev_matched.tsv"),
        "val": str(tmp_path / "xnli" / "dev-zh.tsv"),
        "test": str(tmp_path / "xnli" / "test-zh.tsv"),
    }
    found = splits_of(source)
    assert {split: len(examples) for split, examples in found.items()} == {"train": 90, "tune": 60, "val": 2, "test": 1}
    assert found["val"] == [(("他 好", "我 好"), "neutral"), (("我", "他"), "entailment")]
    file = table(tmp_path / "translated.tsv", pairs(12, seed=9))
    assert len(splits_of(open_task("xnli", source_path=tmp_path, train_file=file))["train"]) == 12


def test_xnli_as_published_is_one_file_of_many_languages(tmp_path):
    header = ("language", "gold_label", "sentence1", "sentence2")
    rows = [("en", "neutral", "a cat", "a dog"), ("zh", "entailment", "他", "我"), ("zh", "-", "好", "我")]
    for name in ("xnli.dev", "xnli.test"):
        table(tmp_path / "XNLI-1.0" / f"{name}.tsv", rows, header)
    table(tmp_path / "MNLI" / "multinli.train.en.tsv", [("a", "b", "contradictory")], ("premise", "hypo", "label"))
    rows = [{"gold_label": "neutral", "sentence1": "a", "sentence2": "c"}]
    json_lines(tmp_path / "MNLI" / "multinli_1.0_dev_matched.jsonl", rows)
    written(tmp_path / "MNLI" / "multinli_1.0_dev_matched.txt", "the same in another format, not read")
    found = splits_of(open_task("xnli", source_path=tmp_path, language="zh"))
    assert found["train"] == [(("a", "b"), "contradiction")]
    assert found["tune"] == [(("a", "c"), "neutral")]
    assert found["val"] == found["test"] == [(("他", "我"), "entailment")]


def test_mnli_halves_its_dev_set_and_no_premise_is_in_both(tmp_path):
    rows = pairs(600, seed=1)
    table(tmp_path / "dev_matched.tsv", rows)
    table(tmp_path / "train.tsv", pairs(9, seed=2))
    found = splits_of(open_task("mnli", source_path=tmp_path))
    tune, val = ({texts[0] for texts, _ in found[split]} for split in ("tune", "val"))
    assert not tune & val
    assert abs(len(tune) - len(val)) <= 1
    assert sorted(found["tune"] + found["val"]) == sorted(((a, b), label) for a, b, label in rows)
    order = {texts: place for place, (texts, _) in enumerate((row[:2], row[2]) for row in rows)}
    assert [order[texts] for texts, _ in found["val"]] == sorted(order[texts] for texts, _ in found["val"])


def test_sst2_holds_some_of_train_out_by_its_text(tmp_path):
    draw = random.Random(3)
    rows = [(f"{sentence(draw)} {number % 300}", number % 2) for number in range(400)]
    rows += rows[:50]  # exact copies stay together
    table(tmp_path / "sst2" / "train.tsv", rows, ("sentence", "label"))
    table(tmp_path / "sst2" / "dev.tsv", [("good", 1), ("bad", 0)], ("sentence", "label"))
    found = splits_of(open_task("sst2", source_path=tmp_path))
    tune, train = ({texts for texts, _ in found[split]} for split in ("tune", "train"))
    assert len(tune) == 20  # 5 % of the different texts
    assert not tune & train
    assert len(found["tune"]) + len(found["train"]) == 450
    assert found["val"] == [(("good",), "positive"), (("bad",), "negative")]


def test_who_is_held_out_depends_on_the_text_alone(tmp_path):
    rows = pairs(300, seed=5)
    for name, some in (("a", rows), ("b", rows[::-1])):
        table(tmp_path / name / "train.tsv", some)
        table(tmp_path / name / "val.tsv", pairs(3, seed=6))
    first, second = (splits_of(own(tmp_path / name)) for name in ("a", "b"))
    for split in ("train", "tune"):
        assert sorted(first[split]) == sorted(second[split])


def test_a_smaller_training_set_lies_within_a_larger_one(tmp_path):
    source = own(nli_folder(tmp_path, train=300, tune=6))
    whole = splits_of(source)["train"]
    sets = [splits_of(source, train_examples=count)["train"] for count in (10, 50, 51, 300)]
    assert [len(found) for found in sets] == [10, 50, 51, 300]
    assert sets[-1] == whole
    for smaller, larger in pairwise(sets):
        assert set(smaller) <= set(larger)
        assert smaller == [example for example in larger if example in smaller]  # in the order of the source
    assert set(sets[1]) != set(whole[:50])
    for wanted in (0, 301):
        with pytest.raises(UserError, match=f"train-examples {wanted}: .*train.tsv has 1 to 300"):
            splits_of(source, train_examples=wanted)
    untuned = own(nli_folder(tmp_path / "untuned", train=300))  # a subset never changes what is held out
    assert splits_of(untuned)["tune"] == splits_of(untuned, train_examples=20)["tune"]


@pytest.mark.parametrize("name", ["val", "dev", "validation"])
def test_a_folder_of_ones_own(tmp_path, name):
    keys = ("premise", "hypothesis", "label")
    table(tmp_path / "train.tsv", pairs(30))
    json_lines(tmp_path / f"{name}.jsonl", [dict(zip(keys, row, strict=True)) for row in pairs(6, seed=1)])
    json_lines(tmp_path / "test.jsonl", [dict(zip(keys, row, strict=True)) for row in pairs(9, seed=2)])
    found = splits_of(own(tmp_path))
    assert {split: len(examples) for split, examples in found.items()} == {"train": 27, "tune": 3, "val": 6, "test": 9}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (("spam", "ham"), ("ham", "spam")),
        (("10", "9", "-1"), ("-1", "9", "10")),
        (("contradiction", "entailment"), ("entailment", "contradiction")),
        (("positive", "negative"), ("negative", "positive")),
    ],
)
def test_labels_of_ones_own_have_an_order_that_the_file_does_not_change(tmp_path, labels, expected):
    for some in (labels, labels[::-1]):
        table(tmp_path / "train.tsv", pairs(60, labels=some))
        table(tmp_path / "val.tsv", pairs(6, seed=1, labels=some))
        source = own(tmp_path)
        assert label_names(source.task, surveyed(source.parts["train"])) == expected


def test_examples_without_a_label_or_a_text_are_dropped_and_counted(tmp_path):
    rows = [*pairs(12), ("a", "b", "-"), ("a", "b", "-1"), ("", "b", "neutral"), ("a", "  ", "neutral"), ("", "", "-")]
    table(tmp_path / "train.tsv", rows)
    table(tmp_path / "dev_matched.tsv", pairs(6, seed=1))
    source = open_task("mnli", source_path=tmp_path)
    surveys = {part: surveyed(found) for part, found in source.parts.items()}
    division = divided(source, surveys, ENTAILMENT)["train"]
    assert (division.unlabelled, division.empty) == (3, 2)
    assert (division.splits >= 0).sum() == 12


def test_numbers_stand_for_the_labels_of_a_known_task(tmp_path):
    table(tmp_path / "train.tsv", [("a", "b", 0), ("a", "c", 1), ("a", "d", 2)])
    table(tmp_path / "dev_matched.tsv", pairs(6, seed=1))
    found = splits_of(open_task("mnli", source_path=tmp_path))
    assert [label for _, label in found["train"]] == list(ENTAILMENT)


def test_the_identity_follows_the_bytes_not_the_path(tmp_path):
    first = own(nli_folder(tmp_path / "a")).identity
    assert own(nli_folder(tmp_path / "b")).identity == first
    assert own(nli_folder(tmp_path / "c", seed=1)).identity != first


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda at: open_task("xnlj", source_path=at), "xnlj: did you mean xnli? known tasks: xnli, mnli, sst2"),
        (lambda at: open_task("xnli", source_path=at / "nowhere"), "nowhere: no such folder"),
        (lambda at: open_task("xnli", source_path=at), "no training file of xnli (its English training set is MNLI's)"),
        (lambda at: open_task("xnli", source_path=at, language="xx"), "language 'xx': xnli has ar, bg, de"),
        (lambda at: open_task("sst2", source_path=at, language="zh"), "language 'zh': sst2 has en"),
        (lambda at: open_task("mnli", source_path=at, train_file=at / "none.tsv"), "no validation file of mnli"),
        (lambda at: open_task(str(at / "nowhere"), task="pairs"), "nowhere: no such folder"),
        (lambda at: open_task(str(at), task="triples"), "task 'triples': known tasks: pairs, sentences"),
        (lambda at: open_task(str(at), task="pairs"), "no train split; it must contain train.tsv or train.jsonl"),
        (lambda at: open_task(str(at), task="pairs", source_path=at), "takes neither --source nor --train"),
        (lambda at: open_task("xnli", task="pairs"), "xnli: a known task, which takes no --task"),
    ],
)
def test_what_is_not_there_is_named(tmp_path, call, said):
    with pytest.raises(UserError) as error:
        call(tmp_path)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_without_validation_or_with_two_training_files_is_refused(tmp_path):
    table(tmp_path / "train.tsv", pairs(30))
    with pytest.raises(UserError, match=r"no val split; it must contain val\.tsv or val\.jsonl"):
        own(tmp_path)
    table(tmp_path / "dev_matched.tsv", pairs(6))
    table(tmp_path / "train_10k.tsv", pairs(30))
    with pytest.raises(
        UserError, match=r"several files could be train \(train.tsv, train_10k.tsv\); choose one with --tr"
    ):
        open_task("mnli", source_path=tmp_path)


# --- the hub --------------------------------------------------------------------------------------------------------


def test_without_the_datasets_library_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    advice = re.escape(f"{install_command('hub')}; or give a local copy with --source FOLDER")
    with pytest.raises(UserError, match=advice):
        open_task("xnli")


def test_hub_rows_become_examples(tmp_path, monkeypatch):
    """The library reads the same rows from a folder as it would from the hub."""
    pytest.importorskip("datasets", reason="pip install 'oelm[hub]'")
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    rows = [{"premise": a, "hypothesis": b, "label": ENTAILMENT.index(label)} for a, b, label in pairs(30)]
    for name in ("train", "validation", "test"):
        written(tmp_path / "nli" / f"{name}.jsonl", "\n".join(map(json.dumps, [*rows, rows[0] | {"label": -1}])))
    sources = {
        part: module.HubSplit(str(tmp_path / "nli"), None, split)
        for part, split in (("train", "train"), ("tune", "validation"), ("val", "validation"), ("test", "test"))
    }
    monkeypatch.setitem(module.HUB, "xnli", sources)
    found = splits_of(open_task("xnli", language="zh"))
    assert found["train"] == found["test"] == [((a, b), label) for a, b, label in pairs(30)]


def test_every_task_names_its_parts_on_the_hub_and_in_files():
    for name in module.TASKS:
        assert set(module.HUB[name]) == set(module.LOCAL[name]) | ({"test"} if name == "xnli" else set())


# --- the real files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("language", ["en", "zh"])
def test_real_xnli(shared_data, language):
    found = splits_of(open_task("xnli", source_path=shared_data, language=language))
    assert {split: len(examples) for split, examples in found.items()} == {
        "train": 10_000, "tune": 9_815, "val": 2_490, "test": 5_010,
    }  # fmt: skip
    for split in ("val", "test"):
        labels = [label for _, label in found[split]]
        assert {labels.count(label) for label in ENTAILMENT} == {len(labels) // 3}


def test_real_mnli_and_sst2(shared_data):
    found = splits_of(open_task("mnli", source_path=shared_data))
    assert len(found["tune"]) + len(found["val"]) == 9_815
    assert 0.48 < len(found["tune"]) / 9_815 < 0.52
    found = splits_of(open_task("sst2", source_path=shared_data), train_examples=1_000)
    assert {split: len(found[split]) for split in ("train", "val")} == {"train": 1_000, "val": 872}
    assert np.isclose(len(found["tune"]), 0.05 * 67_349, rtol=0.02)


@pytest.mark.parametrize("label", ["maybe", "3"])
def test_a_label_outside_the_set_is_named_with_its_line(tmp_path, label):
    table(tmp_path / "train.tsv", [*pairs(4), ("a", "b", label)])
    table(tmp_path / "dev_matched.tsv", pairs(6, seed=1))
    said = f"train.tsv, line 6: label {label!r} is not one of entailment, neutral, contradiction$"
    with pytest.raises(UserError, match=said):
        splits_of(open_task("mnli", source_path=tmp_path))
    table(tmp_path / "train.tsv", pairs(30, labels=("ham", "spam")))
    table(tmp_path / "val.tsv", [("a", "b", "ham"), ("a", "c", label)])
    (tmp_path / "dev_matched.tsv").unlink()
    with pytest.raises(UserError, match=rf"val\.tsv, line 3: label {label!r} is not one of ham, spam"):
        splits_of(own(tmp_path))


def labelled(count: int) -> list[tuple[str, str, str]]:
    return pairs(1200, labels=[f"label {number}" for number in range(count)])


@pytest.mark.parametrize(
    ("train", "val", "said"),
    [
        (pairs(30), [], r"val\.tsv: contains no examples"),
        (pairs(30), None, r"val\.tsv: empty"),
        ([("a", "b", "neutral"), ("a", "c", "entailment")], pairs(3), "too few to hold some out .* add a tune file"),
        (labelled(1), pairs(3), "1 different labels; a task has 2 to 1000"),
        (labelled(1001), pairs(3), "1001 different labels; a task has 2 to 1000"),
    ],
)
def test_sources_with_too_little_are_refused(tmp_path, train, val, said):
    table(tmp_path / "train.tsv", train)
    if val is None:
        written(tmp_path / "val.tsv", "")
    else:
        table(tmp_path / "val.tsv", val)
    with pytest.raises(UserError, match=said):
        splits_of(own(tmp_path))
