"""A batch depends on (data seed, step) and on nothing else."""

import numpy as np
import pytest

from oelm.data.batches import TrainingBatches, ValidationSequences

TOKENS = np.arange(1000, dtype=np.uint16)


def batches(seed: int = 0, batch_size: int = 6, seq_len: int = 16, tokens: np.ndarray = TOKENS) -> TrainingBatches:
    return TrainingBatches(tokens, seq_len, batch_size, seed)


def test_a_step_gives_the_same_rows_in_any_order_and_in_any_parts():
    whole = [batches().rows(step, range(6)) for step in range(1, 40)]
    for step in reversed(range(1, 40)):
        parts = [batches().rows(step, part) for part in (range(0, 1), range(1, 4), range(4, 6))]
        assert np.array_equal(np.concatenate(parts), whole[step - 1])


def test_every_window_is_seen_once_in_an_epoch_and_epochs_differ():
    stream = batches(batch_size=1)
    epochs = [
        [int(stream.rows(1 + epoch * stream.windows + place, range(1))[0, 0]) for place in range(stream.windows)]
        for epoch in range(2)
    ]
    for starts in epochs:
        assert len({start // 16 for start in starts} | {0}) >= stream.windows
        assert len(set(starts)) == stream.windows
        assert {b - a for a, b in zip(sorted(starts), sorted(starts)[1:], strict=False)} == {16}
    assert epochs[0] != epochs[1]


def test_rows_are_consecutive_tokens_with_one_more_than_the_sequence():
    rows = batches().rows(3, range(6))
    assert rows.shape == (6, 17)
    assert (np.diff(rows, axis=1) == 1).all()


def test_another_seed_gives_another_order():
    assert not np.array_equal(batches(seed=0).rows(1, range(6)), batches(seed=1).rows(1, range(6)))


@pytest.mark.parametrize("length", [17, 18, 31, 32, 33, 48, 49])
def test_short_data_still_gives_whole_rows(length):
    stream = batches(tokens=TOKENS[:length])
    for step in range(1, 20):
        assert stream.rows(step, range(6)).shape == (6, 17)


def test_the_order_is_pinned():
    """Stored results were made with this order; a change of it is a new format, not a detail."""
    assert batches().rows(1, range(6))[:, 0].tolist() == PINNED


@pytest.mark.parametrize("wanted", [1, 5, 62, 10_000])
def test_validation_is_a_fixed_evenly_spaced_set(wanted):
    sequences = ValidationSequences(TOKENS, 16, wanted)
    rows = sequences.rows(range(len(sequences)))
    assert len(rows) == min(wanted, 62)
    assert len({tuple(row) for row in rows}) == len(rows)
    gaps = set(np.diff(rows[:, 0]).tolist())
    assert max(gaps, default=0) - min(gaps, default=0) <= 16


PINNED = [853, 533, 725, 229, 821, 917]
