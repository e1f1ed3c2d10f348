"""Tables and JSON lines: what is read, and where exactly a bad file is bad."""

import pytest

from oelm.data.example_files import read_examples
from oelm.errors import UserError
from sentence_sources import json_lines, table, written

ROWS = [
    ("a cat sat", "it is home", "neutral"),
    ('he said "no', "never", "contradiction"),
    ("他好", "我好", "entailment"),
]


def read(file, **options):
    return [(*example.texts, example.label) for example in read_examples(file, **({"pairs": True} | options))]


@pytest.mark.parametrize(
    "header",
    [
        ("premise", "hypothesis", "label"),
        ("sentence1", "sentence2", "gold_label"),
        ("premise", "hypo", "label"),
        (" Premise", "HYPOTHESIS ", "Label"),
    ],
)
def test_a_table_is_read_by_the_names_of_its_columns(tmp_path, header):
    assert read(table(tmp_path / "a.tsv", ROWS, header)) == ROWS
    backwards = [row[::-1] for row in ROWS]
    assert read(table(tmp_path / "b.tsv", backwards, header[::-1])) == ROWS


def test_columns_that_are_not_needed_may_be_there_and_may_be_short(tmp_path):
    header = ("index", "label1", "sentence1", "sentence2", "gold_label", "label2", "label3")
    rows = [(7, "neutral", "a", "b", "entailment", "neutral", "neutral"), (8, "neutral", "c", "d", "neutral")]
    assert read(table(tmp_path / "a.tsv", rows, header)) == [("a", "b", "entailment"), ("c", "d", "neutral")]


def test_json_lines_say_the_same_as_a_table(tmp_path):
    keys = ("sentence1", "sentence2", "gold_label")
    file = json_lines(tmp_path / "a.jsonl", [dict(zip(keys, row, strict=True)) for row in ROWS])
    assert read(file) == ROWS


def test_one_sentence_with_a_number_as_its_label(tmp_path):
    assert read(table(tmp_path / "a.tsv", [("good", 1)], ("sentence", "label")), pairs=False) == [("good", "1")]
    assert read(json_lines(tmp_path / "b.jsonl", [{"text": "good", "label": 1}]), pairs=False) == [("good", "1")]


def test_a_text_with_tabs_and_line_breaks_survives_json_lines(tmp_path):
    texts = {"premise": "a\tb", "hypothesis": "c\nd\u2028e", "label": "neutral"}
    assert read(json_lines(tmp_path / "a.jsonl", [texts])) == [("a\tb", "c\nd\u2028e", "neutral")]


def test_windows_files_are_read(tmp_path):
    file = written(tmp_path / "a.tsv", "\ufeffpremise\thypothesis\tlabel\r\na\tb\tneutral\r\n\r\n")
    assert read(file) == [("a", "b", "neutral")]


def test_a_file_in_many_languages_gives_one(tmp_path):
    header = ("language", "gold_label", "sentence1", "sentence2")
    file = table(tmp_path / "xnli.dev.tsv", [("en", "neutral", "a", "b"), ("zh", "neutral", "他", "我")], header)
    assert read(file, language="zh") == [("他", "我", "neutral")]
    assert len(read(file)) == 2


def test_lines_are_numbered_as_an_editor_does(tmp_path):
    file = written(tmp_path / "a.tsv", "sentence\tlabel\n\na\t0\n\n\nb\t1\n")
    assert [example.line for example in read_examples(file, pairs=False)] == [3, 6]


HEADER = "premise\thypothesis\tlabel\n"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.tsv", "", "empty; its first line must name the columns"),
        (
            "a.tsv",
            "a cat\tit is\tneutral\n",
            "line 1: no column named premise or sentence1; there are 'a cat', 'it is'",
        ),
        ("a.tsv", "premise\tlabel\na\tneutral\n", "line 1: no column named hypothesis or hypo or sentence2"),
        ("a.tsv", "premise\thypothesis\nb\tc\n", "line 1: no column named gold_label or label"),
        ("a.tsv", "premise\tlabel\tpremise\n", "line 1: the column 'premise' is named twice"),
        ("a.tsv", HEADER + "a\tb\tneutral\na\tb\n", "line 3: 2 fields, but the header names 3"),
        ("a.tsv", HEADER + "a\tb\tc\tneutral\n", "line 2: 4 fields, but the header names 3"),
        ("a.tsv", HEADER.encode() + b"a\tb\tneutral\n\xe4\tb\tneutral\n", "line 3: not UTF-8 at byte 1 of the line"),
        ("a.jsonl", '{"premise": "a"\n', "line 1: not JSON"),
        ("a.jsonl", '["a", "b", "neutral"]\n', "line 1: not an object"),
        ("a.jsonl", '{"premise": "a", "label": 0}\n', "line 1: no column named hypothesis"),
        ("a.jsonl", '{"premise": "a", "hypothesis": null, "label": 0}\n', "line 1: None is not a text"),
        ("a.jsonl", '{"premise": "a", "hypothesis": "b", "label": 0.5}\n', "line 1: the label is neither a name nor"),
        ("a.jsonl", '{"premise": "a", "hypothesis": "b", "label": true}\n', "line 1: the label is neither a name nor"),
        (
            "a.jsonl",
            '{"premise": "\\ud800", "hypothesis": "b", "label": 0}\n',
            "line 1: the text holds half a surrogate",
        ),
    ],
)
def test_a_bad_file_is_one_line_with_its_place(tmp_path, name, content, said):
    file = written(tmp_path / name, content)
    with pytest.raises(UserError) as error:
        read(file)
    assert str(error.value).startswith(str(file))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
