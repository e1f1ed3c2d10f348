"""The page speaks both languages, and every word it asks for is there."""

import re
from importlib.resources import files

from oelm.show.board.words import _OWN, page_words

PAGE = files("oelm.show.board").joinpath("page")
SCRIPTS = {file.name: file.read_text(encoding="utf-8") for file in PAGE.iterdir() if file.name.endswith(".js")}


def test_both_languages_fill_in_the_same_facts():
    for code, phrase in _OWN.items():
        english, chinese = (set(re.findall(r"\{(\w+)\}", text)) for text in phrase)
        assert english == chinese, code
        assert all(text.strip() for text in phrase), code


def test_every_word_that_a_script_says_is_there():
    words = page_words("en")
    for name, text in SCRIPTS.items():
        assert set(re.findall(r'say\("([^"]+)"', text)) <= words.keys(), name
        begun = {start.rpartition("`")[2] for start in re.findall(r"say\(`([\w.]+)\$\{", text)}
        assert all(any(code.startswith(start) for code in words) for start in begun), name


def test_no_script_makes_markup_of_text_or_asks_another_host():
    markup = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "https://")
    for name, text in SCRIPTS.items():
        assert not [each for each in markup if each in text], name
        assert set(re.findall(r"http://[^\"]+", text)) <= {"http://www.w3.org/2000/svg"}
