"""An arm in words: the same phrase in a command's line and in a report."""

import pytest

from oelm.core.arm_words import WHEN, described, when
from oelm.core.arms import ARMS
from oelm.core.moves import After, Always, Before, Every, Never, values_of
from oelm.show.words import say

MOVES = [
    Always(), Never(), Every(steps=10), After(fraction=0.8), After(fraction=0.5, order="layer_by_layer"),
    Before(fraction=0.2),
]  # fmt: skip


def test_every_way_to_move_has_its_phrase_in_both_languages():
    assert {when(moves)[0] for moves in MOVES} == set(WHEN)
    for moves in MOVES:
        code, facts = when(moves)
        for language, phrase in zip(("en", "zh"), WHEN[code], strict=True):
            assert phrase.format(**facts) in say(language, f"moves.{code}", **facts)


@pytest.mark.parametrize(
    ("arm", "line"),
    [
        ("trained", "Q, K: normal, trained"),
        ("frozen_half", "Q, K: head_orthogonal, frozen (the first 50% of the heads)"),
        ("late_unfreeze", "Q, K: head_orthogonal, frozen until 80% of training"),
        (
            "progressive_unfreeze",
            "Q, K: head_orthogonal, frozen until 50% of training, then unfrozen layer by layer",
        ),
        ("frozen_query", "Q: orthogonal, frozen; K: normal, trained"),
        ("frozen_feed_forward", "feed-forward up, feed-forward down: orthogonal, frozen"),
        ("every_n", "Q, K: head_orthogonal, moves every 10 steps"),
    ],
)
def test_an_arm_is_one_line(arm, line):
    assert described(ARMS[arm]) == line


def test_as_settings_say_it():
    assert [values_of(moves) for moves in MOVES] == [
        "always", "never", "every 10", "after 0.8 together", "after 0.5 layer_by_layer", "before 0.2",
    ]  # fmt: skip
