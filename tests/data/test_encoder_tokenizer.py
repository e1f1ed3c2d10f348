"""Ids as the encoder wants them: special tokens, second texts, truncation; equal to what transformers makes."""

import random

import numpy as np
import pytest

from oelm.data.prepare_sentences import encoder_tokenizer
from oelm.machine.errors import UserError
from oelm.models.encoder_folder import open_encoder
from sentence_sources import sentence
from small_encoders import TYPES, WORDS, encoder_folder, word_pieces


def tokenizer_of(folder, *, max_length=32, pairs=True):
    return encoder_tokenizer(open_encoder(str(folder))).limited_to(max_length, pairs=pairs)


def examples_of(encoded):
    return [each.tolist() for each in np.split(encoded.ids, np.cumsum(encoded.lengths)[:-1])]


def test_bert_gets_cls_a_sep_b_sep(tmp_path):
    encoded = tokenizer_of(encoder_folder(tmp_path / "a")).encode([("the cat", "it sat .")])
    names = word_pieces().get_vocab()
    wanted = ("[CLS]", "the", "cat", "[SEP]", "it", "sat", ".", "[SEP]")
    assert examples_of(encoded) == [[names[word] for word in wanted]]
    assert encoded.seconds.tolist() == [4]
    assert encoded.truncated.tolist() == [False]


def test_roberta_gets_two_marks_between_its_texts(tmp_path):
    encoded = tokenizer_of(encoder_folder(tmp_path / "a", "roberta")).encode([("ab", "c")])
    ids = examples_of(encoded)[0]
    assert [number if number < 5 else None for number in ids] == [0, None, None, 2, 2, None, 2]
    assert encoded.seconds.tolist() == [5]


@pytest.mark.parametrize("model_type", TYPES)
def test_one_text_has_no_second(tmp_path, model_type):
    encoded = tokenizer_of(encoder_folder(tmp_path / "a", model_type), pairs=False).encode([("the cat",), ("it",)])
    assert encoded.seconds.tolist() == encoded.lengths.tolist()


@pytest.mark.parametrize("model_type", TYPES)
def test_the_longer_text_is_cut_first_and_cuts_are_counted(tmp_path, model_type):
    tokenizer = tokenizer_of(encoder_folder(tmp_path / "a", model_type), max_length=12)
    encoded = tokenizer.encode([("a " * 40, "a"), ("a", "a " * 40), ("a", "a"), ("a " * 40, "a " * 40)])
    assert encoded.truncated.tolist() == [True, True, False, True]
    assert encoded.lengths.tolist()[:2] == [12, 12]
    assert encoded.lengths.max() == 12
    first, second, _, both = encoded.seconds.tolist()
    assert second < both < first


def test_what_the_vocabulary_lacks_is_counted(tmp_path):
    assert tokenizer_of(encoder_folder(tmp_path / "a")).encode([("the 字", "好 字 字")]).unknown == 3
    assert tokenizer_of(encoder_folder(tmp_path / "b", "roberta")).encode([("the 字", "好")]).unknown == 0


@pytest.mark.parametrize("length", [31, 32, 33])
def test_only_what_lost_a_token_counts_as_truncated(tmp_path, length):
    words = ["a"] * (length - 5)
    encoded = tokenizer_of(encoder_folder(tmp_path / "a"), max_length=32).encode([(" ".join(words), "the cat")])
    assert encoded.truncated.tolist() == [length > 32]
    assert encoded.lengths.tolist() == [min(length, 32)]


def test_a_text_without_a_token_keeps_its_place(tmp_path):
    encoded = tokenizer_of(encoder_folder(tmp_path / "a")).encode([("the cat", "\u200b\u0007")])
    assert encoded.lengths.tolist() == [5]
    assert encoded.seconds.tolist() == [4]


@pytest.mark.parametrize("model_type", TYPES)
def test_the_ids_are_those_of_transformers(tmp_path, model_type):
    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    folder = encoder_folder(tmp_path / "a", model_type)
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    draw = random.Random(0)
    texts = [(sentence(draw, longest=20), sentence(draw, longest=20) + "unseen 字") for _ in range(60)]
    encoded = tokenizer_of(folder, max_length=24).encode(texts)
    first, second = zip(*texts, strict=True)
    settings = {"truncation": "longest_first", "max_length": 24, "return_token_type_ids": True}
    expected = theirs(list(first), list(second), **settings)
    assert examples_of(encoded) == expected["input_ids"]
    if model_type == "bert":
        types = [
            [int(at >= second) for at in range(n)] for n, second in zip(encoded.lengths, encoded.seconds, strict=True)
        ]
        assert types == expected["token_type_ids"]


def test_settings_stored_in_the_tokenizer_file_do_not_matter(tmp_path):
    folder = encoder_folder(tmp_path / "a")
    plain = tokenizer_of(folder).encode([("the cat sat", "it ran")])
    stored = word_pieces()
    stored.enable_padding(length=50)
    stored.enable_truncation(6)
    (folder / "tokenizer.json").write_text(stored.to_str())
    assert np.array_equal(tokenizer_of(folder).encode([("the cat sat", "it ran")]).ids, plain.ids)


def test_older_tokenizer_files_are_read_through_transformers(tmp_path):
    pytest.importorskip("transformers", reason="pip install transformers")
    folder = encoder_folder(tmp_path / "a")
    new = tokenizer_of(folder).encode([("The cat", "he said nothing")])
    vocabulary = word_pieces().get_vocab()
    (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.get)) + "\n", encoding="utf-8")
    (folder / "tokenizer.json").unlink()
    old = tokenizer_of(folder)
    assert np.array_equal(old.encode([("The cat", "he said nothing")]).ids, new.ids)
    assert "tokenizer.json" in old.files


@pytest.mark.parametrize(
    ("model_type", "max_length", "said"),
    [
        ("bert", 65, "take 11 to 64 tokens"),
        ("roberta", 65, "take 12 to 64 tokens"),
        ("bert", 10, "take 11 to 64 tokens"),
    ],
)
def test_a_length_that_the_encoder_cannot_take_is_refused(tmp_path, model_type, max_length, said):
    folder = encoder_folder(tmp_path / "a", model_type)
    with pytest.raises(UserError, match=said):
        tokenizer_of(folder, max_length=max_length)
    tokenizer_of(folder, max_length=64)


def test_a_missing_or_broken_tokenizer_is_named(tmp_path):
    folder = encoder_folder(tmp_path / "a")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer\.json: not readable as a tokenizer"):
        tokenizer_of(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UserError, match=r"no tokenizer there \(neither tokenizer\.json nor vocab\.txt"):
        tokenizer_of(folder)


def test_a_tokenizer_that_does_not_fit_its_encoder_is_refused(tmp_path):
    from tokenizers import processors

    folder = encoder_folder(tmp_path / "a")
    bare = word_pieces()
    bare.post_processor = processors.TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
    (folder / "tokenizer.json").write_text(bare.to_str())
    with pytest.raises(UserError, match="adds no special tokens"):
        tokenizer_of(folder)
    unmarked = word_pieces()
    marks = [("[CLS]", 2), ("[SEP]", 3)]
    unmarked.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=marks
    )
    (folder / "tokenizer.json").write_text(unmarked.to_str())
    with pytest.raises(UserError, match="does not mark the second text by segment 1"):
        tokenizer_of(folder).encode([("the cat", "it sat")])
    larger = word_pieces()
    larger.add_tokens(["zzz"])
    (folder / "tokenizer.json").write_text(larger.to_str())
    with pytest.raises(UserError, match=r"makes token 133, but its config\.json has a vocabulary of 133"):
        tokenizer_of(folder).encode([("zzz", WORDS[0])])
