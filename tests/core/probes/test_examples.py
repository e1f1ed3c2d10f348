"""Every example is a pure function of seed, step and place; what is held out is never trained on; the answer is in the
context where the task says so, and guessing is worth what the chance levels say."""

import hashlib
from itertools import pairwise

import numpy as np
import pytest

from oelm.core.probes.examples import (
    GAP_POWER,
    GENERATORS,
    answers_of,
    content_hash,
    held_out_examples,
    refuse_too_few,
    training_examples,
)
from oelm.core.probes.probe import SPLITS, probe_of
from oelm.core.probes.tasks import TASKS, noise_count, noise_of
from oelm.machine.errors import UserError
from oracles import ORACLES, offered

PROBES = {name: probe_of(f"probe:{name}") for name in TASKS}
every_task = pytest.mark.parametrize("name", TASKS)
with_context = pytest.mark.parametrize("name", ORACLES)


def asked(examples):
    """Every answer: tokens, its place, what is asked for, and the number of its difficulty."""
    for row, place in zip(*np.nonzero(examples.is_asked_BT), strict=True):
        yield examples.tokens_BT[row], int(place), int(examples.asked_BT[row, place]), examples.difficulty_B[row]


def test_every_task_has_a_generator_and_an_oracle():
    assert GENERATORS.keys() == TASKS.keys()
    assert {name for name, task in TASKS.items() if task.candidates is not None} == ORACLES.keys()


@every_task
def test_a_batch_is_the_same_in_any_number_of_parts(name):
    whole = training_examples(PROBES[name], seed=3, step=5, members=range(24))
    for cuts in ([0, 24], [0, 7, 8, 24], list(range(25))):
        parts = [
            training_examples(PROBES[name], seed=3, step=5, members=range(first, last))
            for first, last in pairwise(cuts)
        ]
        for field in ("tokens_BT", "asked_BT", "difficulty_B"):
            assert np.array_equal(np.concatenate([getattr(part, field) for part in parts]), getattr(whole, field))


# A digest of the first examples of each task: another one means other data under the same name, and needs another
# GENERATION in core/probes/probe.py.
GENERATED = {
    "recall": "ad9a61f5567461a3",
    "fuzzy_recall": "70497371fbf2d7ec",
    "noisy_recall": "e99e057b5a62d2d8",
    "copy": "dfdf50dc254cf278",
    "selective_copy": "da64c752b4b730f0",
    "induction": "0bce4f7c2992df05",
    "hops": "6f6a8d53d3f0a47e",
    "memorise": "9e5d518394c0a794",
}


@every_task
def test_the_examples_are_what_they_were(name):
    made = hashlib.sha256()
    for examples in (
        training_examples(PROBES[name], seed=1, step=2, members=range(12)),
        held_out_examples(PROBES[name], "val", range(12), seed=1),
    ):
        made.update(np.stack([examples.tokens_BT, examples.asked_BT]).astype("<i8").tobytes())
    assert made.hexdigest()[:16] == GENERATED[name]
    one, *others = (
        training_examples(PROBES[name], seed=seed, step=step, members=range(8)).tokens_BT
        for seed, step in ((0, 1), (1, 1), (0, 2))
    )
    assert not any(np.array_equal(one, other) for other in others)


@every_task
def test_tokens_are_of_the_vocabulary_and_answers_are_counted(name):
    probe = PROBES[name]
    refuse_too_few(probe)
    examples = training_examples(probe, seed=0, step=1, members=range(31))
    assert examples.tokens_BT.min() >= 0
    assert examples.tokens_BT.max() < probe.vocabulary
    assert examples.asked_BT.max() < probe.vocabulary
    assert examples.is_asked_BT.sum() == answers_of(probe, 31)


@with_context
def test_an_oracle_answers_everything_from_the_context(name):
    probe = PROBES[name]
    for examples in (
        training_examples(probe, seed=0, step=1, members=range(60)),
        held_out_examples(probe, "test", range(12), seed=0),
    ):
        for tokens, place, answer, number in asked(examples):
            assert ORACLES[name](probe, tokens.tolist(), place, probe.difficulties[number]) == answer


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.holds_out])
def test_splits_never_coincide(name):
    """Over more than 100,000 examples of the smallest task of its kind, in which chance repeats many."""
    task = TASKS[name]
    lengths = {"fuzzy_recall": 16, "noisy_recall": 10, "induction": 12}
    small = {"vocabulary": 16, "length": lengths.get(name, 8), task.dial: 3 if name == "induction" else 2}
    small |= {"nodes": 3, "queries": 1} if name == "hops" else {}
    probe = probe_of(f"probe:{name}?" + "&".join(f"{key}={value}" for key, value in small.items()))
    found = {split: contents(probe, split, 12_000 if split == "train" else 4_000) for split in SPLITS}
    assert all(found.values())
    for split in SPLITS[1:]:
        assert not found["train"] & found[split]
    assert len(set.union(*found.values())) == sum(map(len, found.values()))


def contents(probe, split, count):
    if split == "train":
        examples = training_examples(probe, seed=0, step=1, members=range(count))
    else:
        examples = held_out_examples(probe, split, range(count), seed=0)
    tokens = examples.tokens_BT.copy()
    if probe.task.name.endswith("recall"):  # random tokens between are no part of the content
        (pairs,) = probe.difficulties
        after = 2 * pairs * int(probe.options.get("tokens", 1)) + noise_count(pairs, probe.options)
        tokens[:, after:][~examples.is_asked_BT[:, after:]] = -1
        tokens[tokens >= probe.vocabulary - len(noise_of(probe.options))] = -1
    return {tuple(row) + tuple(answer) for row, answer in zip(tokens.tolist(), examples.asked_BT.tolist(), strict=True)}


def test_what_a_seed_holds_out_every_seed_holds_out():
    one, other = (held_out_examples(PROBES["recall"], "val", range(9), seed=seed) for seed in (0, 1))
    assert np.array_equal(one.tokens_BT, other.tokens_BT)
    assert not np.array_equal(held_out_examples(PROBES["recall"], "tune", range(9), seed=0).tokens_BT, one.tokens_BT)


def test_a_memorised_table_is_the_seeds_and_nothing_else():
    def table(seed, step):
        examples = training_examples(PROBES["memorise"], seed=seed, step=step, members=range(64))
        return {(tokens[place - 1], tokens[place]): answer for tokens, place, answer, _ in asked(examples)}

    first, later, other = table(0, 1), table(0, 9), table(1, 1)
    shared = first.keys() & later.keys()
    assert len(shared) > 100
    assert all(first[key] == later[key] for key in shared)
    same = [first[key] == other[key] for key in first.keys() & other.keys()]
    assert sum(same) < len(same) / 8


def test_no_fixed_distance_leads_to_what_induction_asks_for():
    """A head that looks back by position alone, however far, finds few of the answers."""
    probe = probe_of("probe:induction?period=8&length=64")
    examples = training_examples(probe, seed=0, step=1, members=range(200))
    found = np.zeros(probe.length)
    for tokens, place, answer, _ in asked(examples):
        found[: place + 1] += tokens[place::-1] == answer
    assert found.max() < 0.3 * examples.is_asked_BT.sum()


def followers_of_the_last_token(tokens, place):
    """What a head of induction finds: what followed the first earlier occurrence of the current token."""
    earlier = np.flatnonzero(tokens[:place] == tokens[place])
    return tokens[earlier[0] + 1] if len(earlier) else -1


def test_a_key_of_several_tokens_is_not_known_by_its_last():
    probe = probe_of("probe:fuzzy_recall?pairs=4,8")
    found = list(asked(training_examples(probe, seed=0, step=1, members=range(400))))
    right = sum(followers_of_the_last_token(tokens, place) == answer for tokens, place, answer, _ in found)
    assert right < 0.6 * len(found)


def test_no_pair_is_asked_for_at_a_place_of_its_own():
    """The best that a guesser by place could do, over the examples it was fitted to, is hardly more than chance."""
    probe, seen = probe_of("probe:recall?pairs=8&length=64"), np.zeros((64, 8))
    for tokens, place, answer, _ in asked(training_examples(probe, seed=0, step=1, members=range(1500))):
        seen[place, np.flatnonzero(tokens[1:16:2] == answer)[0]] += 1
    assert seen.max(axis=1).sum() < 1.25 * seen.sum() / 8


def within_binomial(hits, count, chance):
    return abs(hits - count * chance) <= 4.5 * np.sqrt(count * chance * (1 - chance)) + 1


@with_context
def test_guessing_is_worth_what_the_chance_levels_say(name):
    probe, dice = PROBES[name], np.random.default_rng(0)
    for number, difficulty in enumerate(probe.difficulties):
        found = [
            (answer, offered(probe, tokens, place, difficulty))
            for tokens, place, answer, own in asked(training_examples(probe, seed=2, step=1, members=range(240)))
            if own == number
        ]
        assert all(len(context) == round(1 / probe.chances_in_context[difficulty]) for _, context in found)
        in_context = sum(answer == context[dice.integers(len(context))] for answer, context in found)
        blind = sum(answer == dice.integers(probe.vocabulary) for answer, _ in found)
        assert within_binomial(in_context, len(found), probe.chances_in_context[difficulty])
        assert within_binomial(blind, len(found), probe.blind_chance)


def test_pairs_and_gaps_are_drawn_as_in_zoology():
    """Against NumPy's own draw without replacement with the published weights; keys and values are uniform."""
    pairs, count = 4, 6000
    probe = probe_of(f"probe:recall?pairs={pairs}&length=32&vocabulary=32")
    examples = training_examples(probe, seed=0, step=1, members=range(count))
    space = (32 - 2 * pairs) // 2
    weights = GAP_POWER * np.arange(1, space + 1) ** (GAP_POWER - 1)
    dice = np.random.default_rng(1)
    theirs = np.zeros(space)
    for _ in range(count):
        theirs[dice.choice(space, size=pairs, replace=False, p=weights / weights.sum())] += 1
    places = np.nonzero(examples.is_asked_BT)[1]
    assert (places % 2 == 0).all()
    ours = np.bincount((places - 2 * pairs) // 2, minlength=space)
    assert (np.abs(ours - theirs) <= 4.5 * np.sqrt(ours + theirs)).all()
    for tokens, alphabet in (
        (examples.tokens_BT[:, 0 : 2 * pairs : 2], 15),
        (examples.tokens_BT[:, 1 : 2 * pairs : 2], 16),
    ):
        counts = np.bincount(tokens.ravel())
        counts = counts[counts > 0]
        assert len(counts) == alphabet
        assert (np.abs(counts - count * pairs / alphabet) <= 4.5 * np.sqrt(count * pairs / alphabet)).all()


@pytest.mark.parametrize(
    "data", ["recall?pairs=1&length=4&vocabulary=8", "hops?hops=1&nodes=3&queries=1&length=8&vocabulary=12"]
)
def test_too_few_different_examples_to_hold_some_out_are_refused(data):
    with pytest.raises(UserError, match="too few different examples"):
        refuse_too_few(probe_of(f"probe:{data}"))


def test_the_hash_of_a_content_depends_on_every_token_and_place():
    tokens, nothing = np.arange(8)[None].copy(), np.full((1, 8), -1)
    known = {int(content_hash(tokens, nothing)[0])}
    for place in range(8):
        changed = tokens.copy()
        changed[0, place] += 1
        known.add(int(content_hash(changed, nothing)[0]))
        known.add(int(content_hash(np.roll(tokens, place + 1), nothing)[0]))
    assert len(known) == 16
