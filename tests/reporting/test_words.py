"""Every code has its sentence in both languages, with the facts the analysis gives, in characters the font can show."""

import string

import pytest

from oelm.analysis.findings import NOTES, REASONS
from oelm.analysis.summary import PRETRAINED_STEPS, STEPS
from oelm.config import Start
from oelm.reporting.fonts import chinese_font, has_chinese, missing_glyphs
from oelm.reporting.words import WORDS, characters, say, say_or_code


def fields(phrase: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(phrase) if name}


def test_both_languages_use_the_same_facts():
    for code, (english, chinese) in WORDS.items():
        assert fields(english) == fields(chinese), code


def test_no_phrase_is_left_in_the_other_language():
    for code, (english, chinese) in WORDS.items():
        assert not has_chinese(english), code
        assert has_chinese(chinese) or english == chinese or len(chinese) <= 8, code


@pytest.mark.parametrize(("prefix", "table"), [("reason", REASONS), ("note", NOTES)])
def test_every_code_of_the_analysis_has_a_sentence_of_its_facts(prefix, table):
    for code, facts in table.items():
        assert fields(WORDS[f"{prefix}.{code}"][0]) <= set(facts), code


def test_every_step_and_start_has_a_name():
    for code in (*STEPS, *PRETRAINED_STEPS):
        assert f"step.{code}" in WORDS
    for start in Start.__args__:
        assert f"start.{start}" in WORDS


def test_the_words_of_a_classification_replace_words_that_exist_with_their_facts():
    scenarios = {"arm", "baseline"}  # which the phrase for a language model does not name
    for code, (english, _) in WORDS.items():
        if code.endswith(".classification"):
            general = WORDS[code.removesuffix(".classification")][0]
            assert fields(english) - fields(general) <= (scenarios if code.startswith("scenario.") else set()), code


def test_an_unknown_code_is_shown_with_its_numbers():
    assert say_or_code("en", "reason.something_new", {"pairs": 3}) == "something new: pairs 3"


def test_braces_in_a_fact_are_text():
    assert say("en", "note.unreadable", line="{x}") == "Not readable: {x}"


def test_the_font_has_every_chinese_character_of_the_texts():
    font = chinese_font()
    if font is None:
        pytest.skip("no Chinese font here; pip install 'oelm[fonts]'")
    needed = "".join(character for character in characters("zh") if has_chinese(character))
    assert len(needed) > 300
    assert not missing_glyphs(font, needed)
