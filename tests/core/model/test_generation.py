"""Sampling with and without a cache gives the same tokens."""

from itertools import islice

import pytest

from oelm.core.model.generation import Sampling, generated_tokens
from oelm.core.model.initialization import build
from small_runs import small_run


def tokens(count: int, *, cached: bool, prompt=(1, 2, 3), **sampling: object) -> list[int]:
    run = small_run("frozen_head_orthogonal")
    gpt = build(run.model, run.seeds).double()
    return list(islice(generated_tokens(gpt, list(prompt), Sampling(**sampling), cached=cached), count))


@pytest.mark.parametrize(
    "sampling", [{"temperature": 0.0}, {"temperature": 1.0, "top_k": None, "seed": 7}, {"top_k": 3}]
)
def test_cached_generation_equals_uncached_beyond_the_context_length(sampling):
    assert tokens(60, cached=True, **sampling) == tokens(60, cached=False, **sampling)


def test_one_seed_gives_one_text_and_another_another():
    assert tokens(30, cached=True, seed=1) == tokens(30, cached=True, seed=1)
    assert tokens(30, cached=True, seed=1) != tokens(30, cached=True, seed=2)


def test_top_one_is_greedy():
    assert tokens(20, cached=True, top_k=1) == tokens(20, cached=True, temperature=0.0)


def test_a_prompt_longer_than_the_context_is_cut_from_the_left():
    long = list(range(40))
    whole, end = (tokens(5, cached=True, prompt=prompt, temperature=0.0) for prompt in (long, long[-16:]))
    assert whole == end


@pytest.mark.parametrize("temperature", [1e-320, 1e-9])
def test_a_very_low_temperature_is_greedy(temperature):
    assert tokens(20, cached=True, temperature=temperature) == tokens(20, cached=True, temperature=0.0)
