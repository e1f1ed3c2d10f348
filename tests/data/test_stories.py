"""The embedded corpus: reproducible to the byte, and worth attending to."""

from __future__ import annotations

import hashlib
import itertools
import re
import subprocess

from oelm.data import stories as module
from oelm.data.stories import stories, story

FIRST_HUNDRED = "290899d89a2ab024c594d6620874d387523fa054bb9e8262d2b546ceec105592"
FACTS = {
    *module.THINGS,
    *module.FOODS,
    *module.NUMBERS,
    *(name.lower() for name in module.ANIMAL_NAMES),
    *module.SECRET_NOUNS,
    *(word for _, spot in module.PLACES for word in spot.split()),
}


def digest(seed: int, count: int) -> str:
    return hashlib.sha256("\n\n".join(stories(seed, count)).encode()).hexdigest()


def test_same_seed_gives_the_same_bytes():
    assert digest(0, 100) == FIRST_HUNDRED


def test_bytes_do_not_depend_on_hash_randomization(python_command):
    code = "import sys; from oelm.data.stories import story; print(story(3, 7))"
    printed = [subprocess.check_output(**python_command(code, PYTHONHASHSEED=seed)) for seed in ("1", "2")]
    assert printed[0] == printed[1] == story(3, 7) + "\n"


def test_a_story_depends_on_its_seed_and_index_alone():
    assert list(stories(5, 40))[33] == story(5, 33)
    assert list(itertools.islice(stories(5), 40)) == list(stories(5, 40))


def test_other_seeds_tell_other_stories():
    assert not set(stories(0, 300)) & set(stories(1, 300))


def test_stories_hardly_ever_repeat():
    assert len(set(stories(0, 3000))) == 3000


def test_stories_have_60_to_200_words():
    assert all(60 <= len(text.split()) <= 200 for text in stories(0, 3000))


def test_what_a_story_says_early_is_needed_later():
    for text in stories(0, 500):
        early, _, late = text.lower().partition("\n")
        assert FACTS & set(re.findall(r"\w+", early)) & set(re.findall(r"\w+", late)), text


def test_sums_in_counting_stories_are_right():
    told = re.compile(r"Now \w+ had (\w+) (\w+), and \w+ had (\w+)\..* still had (\w+) \2\.", re.DOTALL)
    sums = [match.groups() for match in map(told.search, stories(0, 3000)) if match]
    assert len(sums) > 20
    for left, _, given, total in sums:
        assert module.NUMBERS.index(left) + module.NUMBERS.index(given) == module.NUMBERS.index(total)


def test_sentences_are_whole():
    text = "\n".join(stories(2, 2000))
    assert not re.search(r"[{}]", text)
    assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [^aeiou]", text)
