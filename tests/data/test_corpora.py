"""Reading text: where documents begin and end, which split they belong to, and what is said of bad input."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import types
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from oelm.cli.one_run import prepare
from oelm.data import corpora, encodings, readers
from oelm.data.corpora import held_out, local_corpus, open_corpus, split_documents
from oelm.data.tasks import TASKS
from oelm.machine.errors import UserError
from oelm.machine.installation import install_command
from small_runs import REPOSITORY, child_environment


def split_texts(source: str | Path, **options) -> dict[str, list[str]]:
    corpus = open_corpus(str(source), **options)
    texts = defaultdict(list)
    for split, document in split_documents(corpus, held_out(corpus)):
        texts[split].append(document.text)
    return texts


def train_texts(file: Path, name: str = "text") -> list[str]:
    reading = corpora.HUB[name].reading if name in corpora.HUB else readers.PLAIN
    return [document.text for document in readers.read_files([file], reading=reading)]


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def message_of(error: pytest.ExceptionInfo) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


def test_marks_separate_documents(tmp_path):
    file = write(tmp_path / "a.txt", "\ufeffone\n\nstill one\n<|endoftext|>\ntwo<|endoftext|>\n<|endoftext|>\nthree\n")
    assert train_texts(file) == ["one\n\nstill one", "two", "", "three"]


def test_a_mark_across_two_blocks_is_found(tmp_path, monkeypatch):
    file = write(tmp_path / "a.txt", "x" * 30 + "<|endoftext|>" + "y" * 30)
    for size in (1, 7, 29, 35, 40):
        monkeypatch.setattr(encodings, "BLOCK_BYTES", size)
        assert train_texts(file) == ["x" * 30, "y" * 30]


def test_a_long_file_without_marks_comes_in_passages_that_lose_nothing(tmp_path):
    paragraphs = [f"Paragraph {number} " + "word " * 50 for number in range(2000)]
    file = write(tmp_path / "book.txt", "\n\n".join(paragraphs))
    passages = train_texts(file)
    assert 20 < len(passages) < 60
    assert all(len(passage) <= readers.PASSAGE_BYTES for passage in passages)
    assert "\n\n".join(passages) == "\n\n".join(paragraphs)


@pytest.mark.parametrize("text", ["a" * 100_000, "é" * 50_000, "漢字" * 20_000, "🙂" * 30_000, "word " * 20_000])
def test_text_without_lines_is_cut_between_characters(tmp_path, text):
    assert "".join(train_texts(write(tmp_path / "a.txt", text))) == text


def test_a_document_of_any_length_is_read_in_bounded_pieces(tmp_path):
    file = write(tmp_path / "a.txt", "start<|endoftext|>" + "long line\n" * 500_000)
    texts = train_texts(file)
    assert texts[0] == "start"
    assert len(texts) > 4
    assert max(map(len, texts)) <= 2 * readers.LONGEST_DOCUMENT_BYTES


@pytest.mark.parametrize("before", ["", "fine text\n<|endoftext|>\n" * 3, "é" * 1000 + "\n"])
def test_invalid_utf8_is_named_by_file_and_byte(tmp_path, before):
    file = write(tmp_path / "a.txt", before.encode() + b"bad \xff here")
    with pytest.raises(UserError) as error:
        train_texts(file)
    assert f"{file}: not UTF-8 at byte {len(before.encode()) + 4};" in message_of(error)


def test_tinystories_without_marks_are_never_cut_at_a_paragraph(tmp_path):
    stories = [
        "Once upon a time there was a cat.\n\nThe cat slept.\n\nOne day, it woke up.",
        "Once there was a dog. \nIt ran.\n\nThe end.",
        "Lily liked cake.\n\nShe ate it.",
        "Once upon a time there was a hen.",
    ]
    file = write(tmp_path / "valid.txt", "\n\n".join(stories) + "\n")
    assert train_texts(file, "tinystories") == stories


def test_wikitext_articles_begin_at_titles_only(tmp_path):
    first = " = First = \n \n Text . \n = = Section = = \n More . \n = Wins ; L = \n = Not = a title = "
    second = " = Second ( film ) = \n \n Text ."
    file = write(tmp_path / "wiki.train.tokens", f" \n{first} \n \n{second} \n \n")
    assert [text.strip() for text in train_texts(file, "wikitext103")] == [first.strip(), second.strip()]


def test_json_lines(tmp_path):
    lines = [{"text": "one\nline"}, {"text": "zwei ü", "id": 3}, {"text": ""}, {"text": None}]
    file = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)) + "\n\n")
    assert train_texts(file) == ["one\nline", "zwei ü", "", ""]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{broken", "not JSON"),
        ("[" * 200_000, "not JSON"),
        ('{"txt": "a"}', 'needs an object with a string "text"'),
        ('{"text": 5}', 'needs an object with a string "text"'),
        ('["a"]', 'needs an object with a string "text"'),
        ('{"text": "\\ud800"}', "surrogate"),
    ],
)
def test_a_bad_json_line_is_named_by_number(tmp_path, line, said):
    file = write(tmp_path / "a.jsonl", '{"text": "good"}\n' * 2 + line + "\n")
    with pytest.raises(UserError) as error:
        train_texts(file)
    assert message_of(error).startswith(f"{file}, line 3: ")
    assert said in str(error.value)


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install pyarrow")
    texts = [f"document {number} ü" for number in range(1000)]
    file = tmp_path / "train.parquet"
    parquet.write_table(pyarrow.table({"id": range(1001), "text": [*texts, None]}), file, row_group_size=300)
    assert train_texts(file) == [*texts, ""]
    assert readers.source_size(file) > 0


def test_parquet_without_text_is_named_with_its_columns(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pip install pyarrow")
    file = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"content": ["a"]}), file)
    with pytest.raises(UserError, match="columns are content"):
        train_texts(file)
    with pytest.raises(UserError, match="not readable as parquet"):
        train_texts(write(tmp_path / "b.parquet", b"no parquet at all"))


def test_missing_pyarrow_names_the_extra(tmp_path, python_command):
    file = write(tmp_path / "a.parquet", b"PAR1")
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from oelm.data.corpora import open_corpus\nfrom oelm.machine.errors import UserError\n"
        "try: open_corpus(sys.argv[1])\nexcept UserError as error: print(error)"
    )
    assert install_command("parquet") in subprocess.check_output(**python_command(code, file))


def test_a_folder_is_sorted_by_the_names_of_its_files(tmp_path):
    for name in ("Corpus-train", "Corpus-valid", "Corpus-test"):
        write(tmp_path / f"{name}.txt", "<|endoftext|>".join(f"{name} {number}" for number in range(4)))
    write(tmp_path / "README.md", "about the data")
    write(tmp_path / ".hidden.txt", "not read")
    texts = split_texts(tmp_path)
    assert texts["train"] == [f"Corpus-train {number}" for number in range(4)]
    assert texts["tune"] == ["Corpus-valid 0", "Corpus-valid 1"]
    assert texts["val"] == ["Corpus-valid 2", "Corpus-valid 3"]
    assert len(texts["test"]) == 4
    assert open_corpus(str(tmp_path)).ignored == ("README.md",)
    for part in ("train", "tune", "val"):
        write(tmp_path / "given" / part / "a.jsonl", json.dumps({"text": part}))
    assert split_texts(tmp_path / "given") == {"train": ["train"], "tune": ["tune"], "val": ["val"]}


def test_a_folder_without_split_names_is_one_stream(tmp_path):
    for number in range(60):
        write(tmp_path / "a folder" / f"file {number} 🙂.txt", f"text {number}")
    texts = split_texts(tmp_path)
    assert sorted(text for members in texts.values() for text in members) == sorted(
        f"text {number}" for number in range(60)
    )
    assert {split: len(members) for split, members in texts.items()} == {"train": 54, "tune": 3, "val": 3}


def test_copies_of_a_document_never_lie_in_two_splits(tmp_path, monkeypatch):
    file = write(tmp_path / "a.txt", "<|endoftext|>".join(f"text {number % 200}" for number in range(1000)))
    for ranked in (0, 1 << 30):  # by share, and by rank
        monkeypatch.setattr(corpora, "RANKED_BYTES", ranked)
        train, tune, val = (set(split_texts(file)[split]) for split in ("train", "tune", "val"))
        assert len(train) + len(tune) + len(val) == len(train | tune | val) == 200


def test_a_split_does_not_depend_on_the_order_of_documents(tmp_path):
    texts = [f"text {number}" for number in range(300)]
    one = split_texts(write(tmp_path / "a.txt", "<|endoftext|>".join(texts)))
    other = split_texts(write(tmp_path / "b.txt", "<|endoftext|>".join(reversed(texts))))
    assert {split: sorted(members) for split, members in one.items()} == {
        split: sorted(members) for split, members in other.items()
    }


def test_small_sources_still_have_tune_and_val(tmp_path):
    texts = split_texts(write(tmp_path / "a.txt", "one<|endoftext|>two<|endoftext|>three"))
    assert {split: len(members) for split, members in texts.items()} == {"train": 1, "tune": 1, "val": 1}
    with pytest.raises(UserError, match="too few to hold out"):
        split_texts(write(tmp_path / "b.txt", "one<|endoftext|>two"))


def test_the_held_out_share_shrinks_with_the_source():
    shares = [corpora.held_out_share(size) for size in (1 << 20, 100 << 20, 1 << 30, 40 << 30, None)]
    assert shares == [0.05, 0.04, 4 / 1024, 0.0005, 0.0005]


def test_stories_count_and_seed_reach_the_generator():
    texts = split_texts("stories", stories=50, seed=3)
    assert sum(map(len, texts.values())) == 50
    assert set(texts) == {"train", "tune", "val"}
    with pytest.raises(UserError, match="at least 1"):
        open_corpus("stories", stories=0)


def test_an_unknown_source_gets_a_suggestion(tmp_path):
    with pytest.raises(UserError, match="did you mean tinystories"):
        open_corpus("tinystory")
    with pytest.raises(UserError, match="known corpora: stories, tinystories"):
        open_corpus(str(tmp_path / "nothing.txt"))
    with pytest.raises(UserError, match="no such file or folder"):
        open_corpus("tinystories", source_path=tmp_path / "nothing")
    with pytest.raises(UserError, match="takes no --source"):
        open_corpus("something", source_path=tmp_path)
    with pytest.raises(UserError, match="known endings: "):
        open_corpus(str(tmp_path))


def test_missing_datasets_library_names_the_extra(monkeypatch):
    monkeypatch.setattr(corpora.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError) as error:
        open_corpus("openwebtext")
    assert install_command("hub") in message_of(error)
    assert "--source PATH" in str(error.value)


def test_an_unreachable_hub_is_one_line(python_command):
    pytest.importorskip("datasets", reason="pip install 'oelm[hub]'")
    code = (
        "from oelm.data.corpora import *\n"
        "try: list(open_corpus('tinystories').parts['train'].read())\n"
        "except UserError as error: print(error)"
    )
    finished = subprocess.run(
        **python_command(code, HF_HUB_OFFLINE="1"), stdout=subprocess.PIPE, timeout=60, check=True
    )
    assert finished.stdout.startswith("tinystories: cannot be read from the Hugging Face hub")
    assert "--source PATH" in finished.stdout
    assert finished.stdout.count("\n") == 1


def test_hub_rows_become_documents(tmp_path, monkeypatch):
    pytest.importorskip("datasets", reason="pip install 'oelm[hub]'")
    for split in ("train", "validation"):
        rows = [{"text": f"{split} {number}"} for number in range(4)]
        write(tmp_path / "stories" / f"{split}.jsonl", "\n".join(map(json.dumps, rows)))
    lines = ["", " = First = \n", "", " Text . \n", "", "", " = Second = \n", "", " Text . \n"]
    for split in ("train", "validation", "test"):
        write(tmp_path / "wiki" / f"{split}.jsonl", "\n".join(json.dumps({"text": line}) for line in lines))
    for name, folder in (("tinystories", "stories"), ("wikitext103", "wiki")):
        source = replace(corpora.HUB[name], path=str(tmp_path / folder), configuration=None)
        monkeypatch.setitem(corpora.HUB, name, source)
    texts = split_texts("tinystories")
    assert texts["train"] == [f"train {number}" for number in range(4)]
    assert texts["tune"] == ["validation 0", "validation 1"]
    articles = split_texts("wikitext103")
    assert [text.split("=")[1] for text in articles["train"]] == [" First ", " Second "]
    assert [text.split("=")[1] for text in articles["val"]] == [" Second "]


def test_one_more_row_is_one_more_corpus(tmp_path, monkeypatch):
    """Its column, and its cut of text without marks, from the hub or from a local copy."""

    def each_line(pieces):
        offset = 0
        for line in pieces:
            yield offset, line
            offset += len(line)

    reading, words = readers.Reading("content", each_line), ("`poems`", "a line")
    source = corpora.HubCorpus(str(tmp_path / "hub"), None, {"train": "train"}, reading, documentation=words)
    monkeypatch.setitem(corpora.HUB, "poems", source)
    monkeypatch.setattr(corpora, "NAMES", ("stories", *corpora.HUB))
    write(tmp_path / "copy" / "a.txt", "one\ntwo\n")
    write(tmp_path / "copy" / "b.jsonl", json.dumps({"content": "three"}))
    (part,) = open_corpus("poems", source_path=tmp_path / "copy").parts.values()
    assert [document.text for document in part.read()] == ["one", "two", "three"]
    write(tmp_path / "copy" / "c.jsonl", json.dumps({"text": "four"}))
    part = open_corpus("poems", source_path=tmp_path / "copy").parts["train"]
    with pytest.raises(UserError, match='needs an object with a string "content"'):
        list(part.read())


def test_a_column_that_the_hub_does_not_have_is_named(monkeypatch):
    """It is no fault of the network."""
    datasets = types.ModuleType("datasets")
    datasets.load_dataset = lambda *_, **__: [{"story": "Once", "author": "x"}]
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    with pytest.raises(UserError) as caught:
        list(corpora.read_hub("tinystories", "train"))
    assert str(caught.value) == 'tinystories: the hub\'s rows have no text "text"; their columns are story, author'


@pytest.mark.parametrize("splits", [{"train": "train", "val": "validation"}, {"valid": "validation"}, {}])
def test_a_row_whose_parts_are_none_of_ours_cannot_be_made(splits):
    with pytest.raises(ValueError, match="known are train, tune, valid, test, and train is needed"):
        corpora.HubCorpus("somebody/something", None, splits)


def test_the_documentation_has_a_line_for_every_cut_of_its_own():
    lines = (REPOSITORY / "docs" / "data.md").read_text(encoding="utf-8").splitlines()
    for source in corpora.HUB.values():
        if source.documentation:
            assert f"| {' | '.join(source.documentation)} |" in lines


def test_the_help_names_every_corpus():
    (argument,) = inspect.signature(prepare, eval_str=True).parameters["source"].annotation.__metadata__
    assert [name for name in (*corpora.NAMES, *TASKS) if not re.search(rf"\b{name}\b", argument.help)] == []


def test_a_folder_with_the_name_of_a_corpus_can_be_meant(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "stories" / "a.txt", "mine")
    assert open_corpus("stories").name == "stories"
    assert [document.text for document in open_corpus("./stories").parts["train"].read()] == ["mine"]
    command = [sys.executable, "-m", "oelm", "prepare", "stories", "--stories", "60", "--out", "made"]
    done = subprocess.run(command, env=child_environment(), capture_output=True, text=True, check=True)
    assert "to read stories in this folder, give ./stories" in done.stderr


# --- tables -----------------------------------------------------------------------------------------------------


def documents_of(path, **options):
    return [(each.text, each.source_bytes) for each in local_corpus("text", path, **options).parts["train"].read()]


@pytest.mark.parametrize(("ending", "mark"), [(".csv", ","), (".tsv", "\t")])
def test_a_row_of_a_table_is_a_document_and_the_sizes_add_up_to_the_file(tmp_path, ending, mark):
    file = tmp_path / f"rows{ending}"
    rows = [["id", "text"], ["1", '"first, and\tstill first"'], ["2", '"said ""no""\r\nand went"'], ["3", ""]]
    file.write_bytes("\n".join(mark.join(row) for row in rows).encode())
    found = documents_of(file)
    assert [text for text, _ in found] == ["first, and\tstill first", 'said "no"\nand went', ""]
    assert sum(size for _, size in found) == file.stat().st_size


def test_another_column_is_named_with_the_option(tmp_path):
    (tmp_path / "a.csv").write_text("review,stars\ngood,5\nbad,1\n")
    (tmp_path / "b.jsonl").write_text('{"review": "so so"}\n')
    assert [text for text, _ in documents_of(tmp_path, column="review")] == ["good", "bad", "so so"]
    with pytest.raises(
        UserError, match=r"a\.csv: has no column 'text'; its columns are review, stars; choose: --column"
    ):
        documents_of(tmp_path)
    with pytest.raises(UserError, match="--column review: is for files of your own"):
        open_corpus("tinystories", source_path=tmp_path, column="review")
    (tmp_path / "c.txt").write_text("text")
    with pytest.raises(UserError, match=r"--column review: .*c\.txt has no columns"):
        documents_of(tmp_path, column="review")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\nonly one\n", "line 2: 1 fields, but the first line names 2"),
        ('text,label\n"open,1\n', "line 2: unexpected end of data"),
        ("text,text\na,b\n", "has more than one column 'text'"),
    ],
)
def test_a_damaged_table_is_named_with_its_line(tmp_path, content, message):
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(UserError, match=message):
        documents_of(tmp_path / "a.csv")


def test_real_corpora(shared_data):
    texts = split_texts("tinystories", source_path=shared_data / "tinystories")
    assert len(texts["train"]) == 9_999
    assert abs(len(texts["tune"]) - len(texts["val"])) <= 1
    assert len(texts["tune"] + texts["val"]) > 700
    assert not set(texts["train"]) & set(texts["tune"] + texts["val"])
    texts = split_texts("wikitext103", source_path=shared_data / "wikitext103")
    counts = {split: len(members) for split, members in texts.items()}
    assert counts == {"train": 155, "tune": 30, "val": 30, "test": 60}
    assert all(text.startswith(" = ") for members in texts.values() for text in members)
    texts = split_texts("openwebtext", source_path=shared_data / "openwebtext")
    assert sum(map(len, texts.values())) == 1_000
    assert all(20 < len(texts[split]) < 80 for split in ("tune", "val"))
