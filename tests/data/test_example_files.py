"""Tables and JSON lines: what is read, and where exactly a bad file is bad."""

import pytest

from oelm.data.tasks import read_examples
from oelm.machine.errors import UserError
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
            "line 1: no column named premise or sentence1; the columns are 'a cat', 'it is'",
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
        ("a.jsonl", '{"premise": "a", "hypothesis": null, "label": 0}\n', "line 1: None is not text"),
        ("a.jsonl", '{"premise": "a", "hypothesis": "b", "label": 0.5}\n', "line 1: the label is neither a name nor"),
        ("a.jsonl", '{"premise": "a", "hypothesis": "b", "label": true}\n', "line 1: the label is neither a name nor"),
        (
            "a.jsonl",
            '{"premise": "\\ud800", "hypothesis": "b", "label": 0}\n',
            "line 1: the text contains half a surrogate",
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


# ---- CSV -------------------------------------------------------------------------------------------------------------

AG_NEWS = (
    '"3","Wall St. Bears Claw Back (Reuters)","Reuters - Short-sellers, Wall Street\'s dwindling\\band of '
    'ultra-cynics, are seeing green again."\n'
    '"4","Say ""Hello"" to the machine","It said ""no"",\nthen it said, ""yes""."\r\n'
    '"1","","Only a description"\n'
)


def test_ag_news_is_read_as_it_is_published(tmp_path):
    file = written(tmp_path / "train.csv", AG_NEWS)
    assert read(file, pairs=False) == [
        (
            "Wall St. Bears Claw Back (Reuters) Reuters - Short-sellers, Wall Street's dwindling\\band of "
            "ultra-cynics, are seeing green again.",
            "3",
        ),
        ('Say "Hello" to the machine It said "no",\nthen it said, "yes".', "4"),
        ("Only a description", "1"),
    ]
    assert [example.line for example in read_examples(file, pairs=False)] == [1, 2, 4]
    assert sum(example.source_bytes for example in read_examples(file, pairs=False)) == len(AG_NEWS.encode())


def test_csv_with_a_header_says_the_same_as_a_table(tmp_path):
    quoted = [[f'"{field.replace(chr(34), chr(34) * 2)}"' for field in row] for row in ROWS]
    text = "\n".join(",".join(row) for row in [["premise", "hypothesis", "label"], *quoted])
    assert read(written(tmp_path / "a.csv", text)) == ROWS
    titled = "Class Index,Title,Description\n2,A title,and more\n"
    assert read(written(tmp_path / "b.csv", titled), pairs=False) == [("A title and more", "2")]
    one = 'text,label\n"a, b",good\n\nc,bad\n'
    assert read(written(tmp_path / "c.csv", one), pairs=False) == [("a, b", "good"), ("c", "bad")]


def test_pairs_in_csv_without_a_header(tmp_path):
    assert read(written(tmp_path / "a.csv", '0,"a, b",c\n1,d,e\n')) == [("a, b", "c", "0"), ("d", "e", "1")]


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl"])
def test_another_encoding_can_be_named(tmp_path, ending):
    text = {"tsv": "text\tlabel\n他好\t0\n", "csv": "0,他好\n", "jsonl": '{"text": "他好", "label": 0}\n'}[ending]
    file = written(tmp_path / f"a.{ending}", text.encode("gbk"))
    assert read(file, pairs=False, encoding="gbk") == [("他好", "0")]
    with pytest.raises(UserError, match=r"not UTF-8 at byte .* of the line; if it is GBK: --encoding gbk"):
        read(file, pairs=False)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "empty; its first line must name the columns, or contain a class and its text"),
        ("a,b\n1,2\n", "line 1: no column named sentence or text"),
        ("1,a\n2,b,c\n", "line 2: 3 fields; without a header a line contains the class and its text"),
        ("1\n2\n", "line 1: 1 fields; without a header"),
        ("1,a\n4,b\n5x,c\n", "line 3: the class is '5x', not a whole number as in the first line"),
        ('1,"a\n2,b\n', "line 1: not CSV"),
        ('1,"a"b\n', "line 1: not CSV"),
        ("text,label\na,b,c\n", "line 2: 3 fields, but the header names 2"),
        ("text,label,text\n", "line 1: the column 'text' is named twice"),
    ],
)
def test_bad_csv_is_one_line_with_its_place(tmp_path, content, said):
    file = written(tmp_path / "a.csv", content)
    with pytest.raises(UserError) as error:
        read(file, pairs=False)
    assert str(error.value).startswith(str(file))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
