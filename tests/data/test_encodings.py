"""Text that is not UTF-8: read when its encoding is named, refused with a usable hint when it is not."""

import pytest

from oelm.data import encodings
from oelm.data.encodings import LIKELY, blocks, checked_encoding, doubt, text_lines
from oelm.data.prepare import prepare
from oelm.data.readers import read_text
from oelm.machine.errors import UserError
from oelm.storage.files import read_json

CHINESE = "".join(f"第{number}天，猫看见了一只鸟，它说：“你好，朋友。”\n" for number in range(4000))
SOURCES = {
    "gbk": CHINESE,
    "gb18030": CHINESE,
    "big5": "".join(f"第 {number} 天，貓看見了一隻鳥，牠說：「你好，朋友。」\n" for number in range(3000)),
    "shift_jis": "".join(f"きょう {number} ねこがとりをみました。\n" for number in range(3000)),
    "cp1252": "".join(f"Le {number}, un café très cher, près de l'école.\n" for number in range(3000)),
    "utf-16": CHINESE,
}


@pytest.mark.parametrize("encoding", SOURCES)
def test_a_named_encoding_gives_the_text_of_the_file(tmp_path, monkeypatch, encoding):
    file = tmp_path / "a.txt"
    file.write_bytes(SOURCES[encoding].encode(encoding))
    for size in (7, 1 << 10, 1 << 20):
        monkeypatch.setattr(encodings, "BLOCK_BYTES", size)
        assert b"".join(blocks(file, checked_encoding(encoding))).decode() == SOURCES[encoding]
    assert "".join(text for _, _, text in text_lines(file, encoding)) == SOURCES[encoding]


@pytest.mark.parametrize("encoding", ["gbk", "big5", "shift_jis", "cp1252", "utf-16"])
@pytest.mark.parametrize("ending", ["txt", "jsonl"])
def test_the_hint_can_be_followed(tmp_path, encoding, ending):
    """The error of one call names what the next call takes, and that gives the data of the same text in UTF-8."""
    text = SOURCES[encoding]
    if ending == "jsonl":
        text = "".join(f'{{"text": "{line}"}}\n' for line in dict.fromkeys(SOURCES[encoding].splitlines()))
        text += '{"text": "a"}\n{"text": "b"}\n'
    for name in ("utf-8", encoding):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"a.{ending}").write_bytes(text.encode(name))
    with pytest.raises(UserError) as refused:
        prepare(str(tmp_path / encoding), out=tmp_path / "out", tokenizer="bpe:300")
    said = str(refused.value)
    assert "not UTF-8 at byte" in said
    assert "\n" not in said
    hint = said.rpartition("--encoding ")[2]
    assert hint == encoding
    here = prepare(str(tmp_path / encoding), out=tmp_path / "a", tokenizer="bpe:300", encoding=hint)
    there = prepare(str(tmp_path / "utf-8"), out=tmp_path / "b", tokenizer="bpe:300")
    assert here["digest"] == there["digest"]
    assert (here["encoding"], there["encoding"]) == (encoding, "utf-8")
    assert read_json(tmp_path / "a" / "manifest.json")["settings"]["encoding"] == encoding


def test_another_encoding_is_another_dataset(tmp_path):
    (tmp_path / "a.txt").write_bytes(CHINESE.encode("gbk"))
    prepare(str(tmp_path / "a.txt"), out=tmp_path / "out", tokenizer="bpe:300", encoding="GBK")
    for encoding, asked in {"gb18030": "gb18030", None: "the default"}.items():
        with pytest.raises(UserError, match=f"encoding is gbk, not {asked}"):
            prepare(str(tmp_path / "a.txt"), out=tmp_path / "out", tokenizer="bpe:300", encoding=encoding)


@pytest.mark.parametrize("name", ["gbkk", "base64", "rot13", "", "a\0b"])
def test_an_unknown_encoding_is_one_line(name):
    with pytest.raises(UserError, match=r"--encoding .*unknown; for example gbk"):
        checked_encoding(name)


FEW = "第一天，猫看见了一只鸟。\n" * 9


@pytest.mark.parametrize(
    ("raw", "encoding", "said"),
    [
        (FEW.encode()[:-2], None, "the file is UTF-8 and ends inside a character: truncated?"),
        (FEW.encode("gbk")[:-2], "gbk", "ends inside a character of gbk, at byte "),
        ("voilà".encode("cp1252"), None, "if it is Windows-1252: --encoding cp1252"),  # not UTF-8 that was cut
        ((FEW + "中国人民\n").encode("gbk"), "big5", "if it is GBK: --encoding gbk"),
        (FEW.encode(), "big5", "if it is UTF-8: leave --encoding out"),
        ((FEW + "𠮷a\n").encode("gb18030"), "gbk", "if it is GB18030: --encoding gb18030"),
        (FEW.encode("utf-16"), "gbk", "if it is UTF-16: --encoding utf-16"),
        (b"plain\x81\xff", "utf-16", "give its encoding with --encoding, or convert"),
        (b"plain text\xff\xff", "gbk", "not gbk at byte 10"),
    ],
)
def test_a_hint_never_leads_to_the_next_refusal(tmp_path, raw, encoding, said):
    (tmp_path / "a.txt").write_bytes(raw)
    with pytest.raises(UserError) as refused:
        list(read_text(tmp_path / "a.txt", encoding=encoding))
    assert said in str(refused.value)
    hint = str(refused.value).partition("--encoding ")[2]
    if hint in LIKELY:
        assert list(read_text(tmp_path / "a.txt", encoding=hint))


WESTERN = (
    SOURCES["cp1252"][:9000],
    "Über die Größe der Straße: füllen, hören, schön, „Mädchen“ – Äpfel, Öl.\n" * 50,
    "¿Qué pasó mañana? ¡Él comió piñas, según la señora!\n" * 50,
    "Året då åtta älgar gick över ön, på väg mot Åre.\n" * 50,
    "plain words\n" * 50,
)


def test_a_western_encoding_named_for_chinese_is_doubted_and_for_western_text_never(tmp_path):
    file = tmp_path / "a.txt"
    for encoding in ("gbk", "utf-8"):
        file.write_bytes(FEW.encode(encoding))
        assert doubt(file, "Windows-1252") == encoding
        assert doubt(file, "gbk") is None
    for text in WESTERN:
        file.write_bytes(text.encode("cp1252"))
        assert doubt(file, "cp1252") is None
    file.write_bytes(b"")
    assert doubt(file, "cp1252") is None


def test_what_is_no_file_of_ones_own_takes_no_encoding(tmp_path):
    with pytest.raises(UserError, match="--encoding gbk: is for files of your own; stories is UTF-8"):
        prepare("stories", out=tmp_path / "out", encoding="gbk")


# ---- Line ends and empty files ---------------------------------------------------------------------------------------


def test_line_ends_of_windows_are_read_as_lf_and_counted(tmp_path):
    for name, end in (("unix", "\n"), ("windows", "\r\n")):
        text = "<|endoftext|>".join(f"line one of {n}{end}{end}line two{end}" for n in range(60))
        (tmp_path / f"{name}.txt").write_bytes(text.encode())
    unix, windows = (
        prepare(str(tmp_path / f"{name}.txt"), out=tmp_path / name, tokenizer="bpe:300") for name in ("unix", "windows")
    )
    assert unix["digest"] == windows["digest"]
    counts = [sum(split["crlf_line_ends"] for split in each["splits"].values()) for each in (unix, windows)]
    assert counts == [0, 180]
    for name, raw in {"marked": b"words\r\n<|endoftext|>\r\n" * 9, "plain": b"words\r\n" * 18}.items():
        (tmp_path / name).write_bytes(raw)  # also after the last mark
        assert sum(each.crlf for each in read_text(tmp_path / name)) == 18


def test_the_command_says_it_once(tmp_path, monkeypatch, capsys):
    import sys

    from oelm.cli import main

    text = "<|endoftext|>".join(f"你好 {n}\r\nmore\r\n" for n in range(60))
    (tmp_path / "a.txt").write_bytes(text.encode("gbk"))
    words = ["prepare", str(tmp_path / "a.txt"), "--out", str(tmp_path / "out"), "--tokenizer", "bpe:300"]
    words += ["--encoding", "cp1252"]
    monkeypatch.setattr(sys, "argv", ["oelm", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    out, err = capsys.readouterr()
    assert out.count("120 line endings are CRLF (Windows); they were read as LF") == 1
    assert err.count(f"WARNING: {tmp_path / 'a.txt'}: looks like gbk, but is read as cp1252 as requested") == 1


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.parquet"])
def test_an_empty_file_is_called_empty(tmp_path, name):
    file = tmp_path / "source" / name
    file.parent.mkdir()
    file.touch()
    for source in (file, file.parent):
        with pytest.raises(UserError) as refused:
            prepare(str(source), out=tmp_path / "out", tokenizer="bpe:300")
        assert str(refused.value) == f"{file}: empty"


@pytest.mark.parametrize(
    ("text", "said"),
    [("\n \n\n", "contains no text"), ("one\n", "only 1 different document: too few to hold out tune and val")],
)
def test_a_file_with_too_little_text_is_refused(tmp_path, text, said):
    (tmp_path / "a.txt").write_text(text)
    with pytest.raises(UserError, match=said):
        prepare(str(tmp_path / "a.txt"), out=tmp_path / "out", tokenizer="bpe:300")
