"""Laws of head scores: a head of one kind scores 1 for it and 0 for the others, where the kinds can be told apart."""

import numpy as np
import pytest

from oelm.machine.errors import UserError
from oelm.models.heads.kinds import KINDS, NAMES, SPREADS
from oelm.models.heads.scores import Sequences, head_scores, keys_of, repeated_tokens, windows
from small_runs import REPOSITORY

VOCABULARY, LENGTH = 40, 31


def repeated(seed=0):
    return repeated_tokens(VOCABULARY, length=LENGTH, sequences=3, seed=seed)


def text(seed=0):
    """Few tokens that follow each other at random: repetitions of every sort."""
    return np.random.default_rng(seed).integers(0, 12, size=(4, 40))


def keys_one_by_one(row, t):
    """The keys of every kind, as a person would look for them."""
    earlier = [s for s in range(t) if row[s] == row[t]]
    return {
        "previous": {t - 1} if t else set(),
        "duplicate": set(earlier),
        "induction": {s + 1 for s in earlier},
        "current": {t},
        "first": {0},
    }


def built_by_hand(tokens, kind):
    """One head that gives all of its attention to the keys of a kind, evenly, and itself where there are none."""
    weights = np.zeros((len(tokens), 1, tokens.shape[1], tokens.shape[1]))
    for b, row in enumerate(tokens):
        for t in range(len(row)):
            keys = sorted(keys_one_by_one(row, t)[kind]) or [t]
            weights[b, 0, t, keys] = 1 / len(keys)
    return weights


@pytest.mark.parametrize("tokens", [repeated(), text()], ids=["repeated", "text"])
def test_a_head_of_a_kind_scores_one_for_it_and_nothing_else(tokens):
    built = [built_by_hand(tokens, kind) for kind in KINDS]
    found = head_scores(Sequences(tokens), lambda part: built, at_once=len(tokens))
    assert found.positions > 20
    for layer, kind in enumerate(KINDS):
        for other in KINDS:
            assert found.scores[other][layer][0] == pytest.approx(float(other == kind)), (kind, other)
        assert found.strongest(layer, 0) == kind


@pytest.mark.parametrize("tokens", [repeated(), text(), text(1)])
def test_a_position_counts_where_a_token_came_before_and_no_key_is_of_two_kinds(tokens):
    keys = keys_of(Sequences(tokens))
    for b, row in enumerate(tokens):
        for t in range(len(row)):
            expected = keys_one_by_one(row, t)
            for kind, of_kind in keys.of_kind.items():
                assert set(np.nonzero(of_kind[b, t])[0]) == expected[kind]
            apart = sum(map(len, expected.values())) == len(set.union(*expected.values()))
            assert keys.counted[b, t] == (apart and bool(expected["duplicate"]))


def row_of(tokens):
    """How many tokens at the end are repetitions."""
    return len(tokens) - len(set(tokens))


def test_of_repeated_tokens_exactly_the_repetition_counts():
    assert (repeated(1) == repeated(1)).all()
    assert (repeated(1) != repeated(2)).any()
    for row, counted in zip(repeated(), keys_of(Sequences(repeated())).counted, strict=True):
        length = row_of(row)
        assert row[-length:].tolist() == row[-2 * length : -length].tolist()
        assert counted.tolist() == [False] * (len(row) - length) + [True] * length


def test_a_head_that_looks_a_fixed_distance_back_is_of_no_kind():
    """It would solve any one period by place alone."""
    tokens = repeated_tokens(1000, length=65, sequences=16, seed=0)
    assert len({row_of(row) for row in tokens}) == 16
    weights = [np.broadcast_to(np.eye(65, k=-distance) + np.eye(65) * (np.arange(65) < distance), (16, 1, 65, 65))
               for distance in range(2, 64)]  # fmt: skip
    found = head_scores(Sequences(tokens), lambda part: weights, at_once=16)
    for kind in ("duplicate", "induction"):
        assert max(map(max, found.scores[kind])) < 0.15


@pytest.mark.parametrize(
    ("vocabulary", "length", "rows"),
    [(4, 100, {3}), (1000, 7, {3}), (1000, 8, {3}), (9, 100, {8}), (12, 17, {5, 6, 7, 8}), (1000, 17, {4, 5, 6, 7, 8})],
)
def test_length_and_vocabulary_say_how_long_rows_are(vocabulary, length, rows):
    tokens = repeated_tokens(vocabulary, length=length, sequences=5, seed=0)
    assert tokens.shape == (5, 2 * max(rows) + 1)
    assert {row_of(row) for row in tokens} == rows
    assert keys_of(Sequences(tokens)).counted.sum() == sum(map(row_of, tokens))


def random_weights(tokens, *, layers=2, heads=3, seed=0):
    generator = np.random.default_rng(seed)
    time = tokens.shape[1]
    scores = generator.normal(size=(layers, len(tokens), heads, time, time))
    scores = np.where(np.tri(time, dtype=bool), np.exp(3 * scores), 0.0)
    return scores / scores.sum(-1, keepdims=True)


def test_scores_are_shares_of_one_whole_and_spreads_what_their_words_say():
    tokens = text()
    weights = random_weights(tokens)
    found = head_scores(Sequences(tokens), lambda part: list(weights), at_once=len(tokens))
    assert tuple(found.scores) == NAMES
    counted = [tuple(place) for place in np.argwhere(keys_of(Sequences(tokens)).counted)]
    for layer in range(2):
        for head in range(3):
            assert 0 < sum(found.scores[kind][layer][head] for kind in KINDS) <= 1
            rows = [weights[layer, b, head, t] for b, t in counted]
            expected = {
                "entropy": np.mean([-(row[row > 0] * np.log(row[row > 0])).sum() for row in rows]),
                "keys": np.mean([1 / (row**2).sum() for row in rows]),
                "distance": np.mean(
                    [(row * (t - np.arange(len(row)))).sum() for (_, t), row in zip(counted, rows, strict=True)]
                ),
            }
            assert {name: found.scores[name][layer][head] for name in SPREADS} == pytest.approx(expected)


def test_scores_do_not_depend_on_how_many_sequences_are_computed_at_once():
    tokens = text()
    weights = random_weights(tokens)

    def of(part):
        first = next(i for i in range(len(tokens)) if (tokens[i] == part[0]).all())
        return [layer[first : first + len(part)] for layer in weights]

    whole, single = (head_scores(Sequences(tokens), of, at_once=number) for number in (4, 1))
    for name in NAMES:
        assert np.allclose(whole.scores[name], single.scores[name])
    assert whole.even == pytest.approx(single.even)


def test_even_is_what_a_head_has_that_attends_to_all_keys_alike():
    tokens = text()
    evenly = np.tri(40)[None, None] / np.arange(1, 41)[:, None] * np.ones((4, 1, 1, 1))
    found = head_scores(Sequences(tokens), lambda part: [evenly], at_once=4)
    assert {name: found.scores[name][0][0] for name in NAMES} == pytest.approx(found.even)
    assert found.even["keys"] > 10
    assert found.strongest(0, 0) is None


def test_text_in_which_nothing_can_be_scored_is_refused():
    tokens = np.arange(20)[None]
    with pytest.raises(UserError, match="no token of these sequences can be scored"):
        head_scores(Sequences(tokens), lambda part: [random_weights(tokens)[0]], at_once=1)
    for vocabulary, length in ((3, 100), (1000, 6)):
        with pytest.raises(UserError, match="at least 7 tokens and a vocabulary of at least 4"):
            repeated_tokens(vocabulary, length=length, sequences=1, seed=0)


def test_the_page_has_a_line_for_every_score():
    page = (REPOSITORY / "docs" / "probes.md").read_text(encoding="utf-8")
    for name in NAMES:
        assert f"\n| `{name}` | " in page
    for kind in KINDS.values():
        assert f"\n| `{kind.name}` | {kind.keys}" in page


def test_windows_are_pieces_of_the_text_that_do_not_overlap():
    stream = np.arange(1000, dtype=np.uint16)
    chosen = windows(stream, length=30, sequences=10, seed=0)
    assert chosen.shape == (10, 30)
    assert len(np.unique(chosen)) == 300
    assert (np.diff(chosen, axis=1) == 1).all()
    assert windows(stream, length=300, sequences=10, seed=0).shape == (3, 300)
