"""The page speaks both languages, and every word it asks for is there."""

import re
from importlib.resources import files

import pytest

from oelm.show.board.words import _OWN, page_words

PAGE = files("oelm.show.board").joinpath("page")
SCRIPTS = {file.name: file.read_text(encoding="utf-8") for file in PAGE.iterdir() if file.name.endswith(".js")}


@pytest.mark.parametrize("code", _OWN)
def test_both_languages_fill_in_the_same_facts(code):
    english, chinese = (set(re.findall(r"\{(\w+)\}", text)) for text in _OWN[code])
    assert english == chinese
    assert all(text.strip() for text in _OWN[code])


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_word_that_a_script_says_is_there(name):
    words = page_words("en")
    asked = set(re.findall(r'say\("([^"]+)"', SCRIPTS[name]))
    assert asked <= words.keys()
    begun = {start.rpartition("`")[2] for start in re.findall(r"say\(`([\w.]+)\$\{", SCRIPTS[name])}
    assert all(any(code.startswith(start) for code in words) for start in begun)


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_makes_markup_of_text_or_asks_another_host(name):
    text = SCRIPTS[name]
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "https://",
    ):
        assert forbidden not in text
    assert set(re.findall(r"http://[^\"]+", text)) <= {"http://www.w3.org/2000/svg"}
