"""Batches of sentences: a pure function of seed and step, every example once an epoch, little padding."""

import numpy as np
import pytest

from oelm.data.batches import SentenceBatches, evenly_spaced, padded
from oelm.data.sentences import Sentences
from oelm.machine.errors import UserError


def drawn(count: int = 103, longest: int = 40) -> Sentences:
    generator = np.random.default_rng(0)
    lengths = generator.integers(3, longest, size=count)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Sentences(
        ids=generator.integers(5, 99, size=offsets[-1]).astype("<u2"),
        offsets=offsets,
        seconds=(lengths // 2).astype("<i4"),
        labels=generator.integers(0, 3, size=count).astype("<i2"),
    )


def test_a_batch_depends_on_seed_and_step_alone():
    sentences = drawn()
    one, two = SentenceBatches(sentences, 8, seed=3), SentenceBatches(sentences, 8, seed=3)
    later = [one.indices(step) for step in (40, 7, 1)]
    assert all(np.array_equal(two.indices(step), found) for step, found in zip((40, 7, 1), later, strict=True))
    assert not np.array_equal(SentenceBatches(sentences, 8, seed=4).indices(1), one.indices(1))


def test_seed_and_epoch_also_order_the_batches():
    """Where one group holds all examples, its batches are made by length: only their order can depend on the seed."""
    sentences = drawn()
    longest = int(sentences.lengths.argmax())

    def place(seed, epoch):
        batches = SentenceBatches(sentences, 8, seed=seed)
        return next(step for step in range(12) if longest in batches.indices(12 * epoch + step + 1))

    assert len({place(seed, epoch=0) for seed in range(6)}) > 2
    assert len({place(0, epoch) for epoch in range(6)}) > 2


def test_an_epoch_holds_every_example_at_most_once_and_the_next_is_another():
    batches = SentenceBatches(drawn(), 8, seed=0)
    assert batches.per_epoch == 12
    epochs = [np.concatenate([batches.indices(step) for step in range(first, first + 12)]) for first in (1, 13)]
    for epoch in epochs:
        assert len(set(epoch.tolist())) == 96
    assert not np.array_equal(*epochs)


def test_examples_of_similar_length_come_together():
    sentences = drawn(4000)
    batches = SentenceBatches(sentences, 16, seed=0)
    padded_tokens = sum(16 * sentences.lengths[batches.indices(step)].max() for step in range(1, 251))
    assert padded_tokens < 1.1 * sentences.lengths.sum()
    firsts = [sentences.lengths[batches.indices(step)].max() for step in range(1, 51)]
    assert firsts != sorted(firsts, reverse=True)  # lengths are no trend over the steps


def test_tokens_after_a_step_are_those_of_its_batches():
    sentences = drawn()
    batches = SentenceBatches(sentences, 8, seed=0)
    counted = 0
    for step in range(1, 31):
        counted += int(sentences.lengths[batches.indices(step)].sum())
        assert batches.tokens_after(step) == counted
    assert batches.tokens_after(0) == 0


def test_a_padded_batch_holds_each_example_its_mask_and_its_segments():
    sentences = drawn(5)
    batch = padded(sentences, np.array([4, 1]), padding=7, token_types=True)
    for row, index in enumerate((4, 1)):
        length, second = int(sentences.lengths[index]), int(sentences.seconds[index])
        assert batch["input_ids"][row, :length].tolist() == sentences.example(index).tolist()
        assert set(batch["input_ids"][row, length:].tolist()) <= {7}
        assert batch["attention_mask"][row].sum() == length
        assert batch["token_type_ids"][row].tolist() == [
            int(second <= place < length) for place in range(batch["input_ids"].shape[1])
        ]
    assert "token_type_ids" not in padded(sentences, np.array([0]), padding=0, token_types=False)


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(UserError, match="104 is more than the 103 training examples"):
        SentenceBatches(drawn(), 104, seed=0)


@pytest.mark.parametrize(("available", "wanted", "count"), [(10, 4, 4), (10, 10, 10), (10, 10**9, 10)])
def test_a_part_of_the_held_out_examples_is_spread_over_all(available, wanted, count):
    found = evenly_spaced(available, wanted)
    assert len(set(found.tolist())) == count
    assert found.max() < available
