"""The pages about the findings: a number with its interval is the stored one, rounded once."""

import math
import re
from pathlib import Path

import pytest

import oelm
from oelm.analysis.summary import findings_as_json

ROOT = Path(__file__).parents[2]
FINDINGS = ROOT / "docs/findings"
STUDIES = sorted(each.parent.name for each in FINDINGS.glob("*/runs.zip"))
PAGES = [
    "README.md",
    "README.zh.md",
    "docs/findings/README.md",
    *(f"docs/findings/{each}/README.md" for each in STUDIES),
]
# Of no stored run: a bench that no longer counts.
ELSEWHERE = {"0.963 (0.943 to 0.983)"}
NUMBER = r"[+−-]?\d[\d,.]*\d|[+−-]?\d"
WITH_INTERVAL = re.compile(
    rf"(?P<middle>{NUMBER})(?: ?%| points| times)?"
    r"(?: perplexity| per doubling| with every doubling| of the time| of accuracy)?"
    rf" ?[(（](?:95 % )?(?P<low>{NUMBER}) (?:to|至) (?P<high>{NUMBER})[)）]"
)
# What a reader is shown of a stored number: itself, in per cent of a perplexity, in points; and the other way round.
SHOWN = (lambda x: x, lambda x: 100 * x, lambda x: 100 * math.expm1(min(x, 50.0)))


def stored_triples(tree):
    if isinstance(tree, dict):
        middle = next((tree[key] for key in ("mean", "middle", "slope") if isinstance(tree.get(key), float)), None)
        if middle is not None and isinstance(tree.get("low"), float) and isinstance(tree.get("high"), float):
            yield middle, tree["low"], tree["high"]
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    for each in children:
        yield from stored_triples(each)


@pytest.fixture(scope="module")
def triples():
    found = set()
    for study in STUDIES:
        results = findings_as_json(oelm.results(FINDINGS / study / "runs.zip").findings)
        for middle, low, high in stored_triples(results):
            for show in SHOWN:
                found.add((show(middle), show(low), show(high)))
                found.add((-show(middle), -show(high), -show(low)))
    return found


def is_rounded(text, number):
    decimals = len(text.partition(".")[2])
    return abs(float(text.replace("−", "-").replace(",", "")) - number) <= 0.5 * 10**-decimals + 1e-9


@pytest.mark.parametrize("page", PAGES)
def test_a_number_with_its_interval_is_the_stored_one_rounded_once(triples, page):
    written = {
        each.group(0): each.group("middle", "low", "high") for each in WITH_INTERVAL.finditer((ROOT / page).read_text())
    }
    assert written
    wrong = [
        text
        for text, parts in written.items()
        if text not in ELSEWHERE and not any(all(map(is_rounded, parts, triple)) for triple in triples)
    ]
    assert wrong == []


def test_a_number_that_was_rounded_twice_is_found():
    assert is_rounded("+2.0", 1.951)
    assert not is_rounded("+1.9", 1.951)
    assert not is_rounded("+7.9", 7.848)
