"""Positions and normalised queries and keys are what transformers' Llama, Bloom and Qwen3 have."""

import pytest
import torch

from oelm.core.config import Seeds
from oelm.core.model.attention import causal_attention, masked_attention
from oelm.core.model.initialization import build
from oelm.core.model.scores import NORM_EPSILON, ROTARY_BASE, normalised, rotated, rotation_of
from oelm.core.scores import Scores
from small_runs import small_model

pytest.importorskip("transformers", reason="pip install transformers")


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("positions", [torch.arange(7), torch.tensor([[0, 0, 1, 2], [3, 4, 5, 6]])], ids=["T", "BT"])
def test_rotary_positions_are_llamas(positions):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    config = LlamaConfig(hidden_size=24, num_attention_heads=3, head_dim=8)
    assert config.rope_parameters["rope_theta"] == ROTARY_BASE
    queries = random(2, 3, positions.shape[-1], 8)
    cosines, sines = LlamaRotaryEmbedding(config)(queries, positions.expand(2, -1))
    theirs, _ = apply_rotary_pos_emb(queries, queries, cosines, sines)
    assert torch.equal(rotated(queries, rotation_of(positions, 8, torch.float64)), theirs)


def test_normalised_queries_are_qwen3s():
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

    norm, queries = Qwen3RMSNorm(8, eps=NORM_EPSILON), random(2, 3, 5, 8)
    with torch.no_grad():
        norm.weight.copy_(random(8))
    theirs = norm(queries)  # in single precision inside
    torch.testing.assert_close(normalised(queries, norm.weight), theirs.double(), rtol=1e-5, atol=1e-6)


def test_normalised_scores_do_not_depend_on_the_gain_of_a_start():
    tokens = torch.arange(16)[None]

    def hidden(**query: object) -> torch.Tensor:
        plain = small_model(scores=Scores(query_key_norm=True))
        parts = plain.parts.model_copy(update={"query": plain.parts.query.model_copy(update=query)})
        return build(plain.model_copy(update={"parts": parts}), Seeds()).double()(tokens)

    torch.testing.assert_close(hidden(gain=64.0), hidden(gain=4096.0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [2, 5, 24])
def test_queries_of_another_width_than_values_meet_at_their_own_scale(width):
    queries, keys, values = random(1, 2, 9, width), random(1, 2, 9, width) * 2, random(1, 2, 9, 8)
    scores = (queries @ keys.transpose(2, 3) / width**0.5).masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf)
    expected = scores.softmax(-1) @ values
    torch.testing.assert_close(causal_attention(queries, keys, values, dropout=0.0), expected)
    last = masked_attention(queries[:, :, 6:], keys, values, None, dropout=0.0)
    torch.testing.assert_close(last, expected[:, :, 6:])


@pytest.mark.parametrize("positions", ["rotary", "none"])
def test_only_learned_positions_have_an_embedding_and_all_but_none_know_the_order(positions):
    gpt = build(small_model(positions=positions, num_layers=1), Seeds()).double()
    assert not any("position" in name for name in gpt.state_dict())
    tokens = torch.tensor([[5, 6, 7, 8]])
    first, swapped = gpt(tokens)[0, -1], gpt(tokens[:, [1, 0, 2, 3]])[0, -1]
    assert torch.allclose(first, swapped, atol=1e-12) == (positions == "none")


# ---- Scores from no token ------------------------------------------------------------------------------------------


def attention_of(gpt, tokens: torch.Tensor) -> list[torch.Tensor]:
    """The weights of every layer, B H T S."""
    weights: list[torch.Tensor] = []
    gpt.hidden(gpt.token_embedding(tokens), torch.arange(tokens.shape[1]), weights=weights)
    return weights


def of_source(source: str, *, waves: bool = False, **settings: object):
    gpt = build(small_model(scores=Scores(source=source), **settings), Seeds()).double()
    if waves:
        for layer, block in enumerate(gpt.blocks):
            block.attention.distance_key.data = random(*block.attention.distance_key.shape) * (3 + layer)
    return gpt


@pytest.mark.parametrize("source", ["nothing", "distance"])
@pytest.mark.parametrize("positions", ["learned", "rotary", "none"])
def test_without_scores_every_token_attends_to_all_up_to_itself_alike(source, positions):
    """So does what scores the distance, before its waves have any height."""
    tokens = torch.arange(32).view(2, 16)
    uniform = torch.ones(16, 16, dtype=torch.float64).tril() / torch.arange(1, 17)[:, None]
    for weights in attention_of(of_source(source, positions=positions), tokens):
        torch.testing.assert_close(weights, uniform.expand_as(weights), rtol=1e-6, atol=0)  # a softmax in float32


def test_scores_of_the_distance_are_waves_of_it_and_of_nothing_else():
    gpt, width = of_source("distance", waves=True), 8
    one, other = (attention_of(gpt, torch.arange(first, first + 32).view(2, 16)) for first in (0, 32))
    frequencies = 1 / ROTARY_BASE ** (torch.arange(0, width, 2).double() / width)
    distances = torch.arange(16)[:, None] - torch.arange(16)
    angles = distances.double()[..., None] * frequencies
    for block, mine, theirs in zip(gpt.blocks, one, other, strict=True):
        assert torch.equal(mine, theirs)
        first, second = block.attention.distance_key.chunk(2, dim=1)
        waves = (first + second)[:, None, None] * angles.cos() + (second - first)[:, None, None] * angles.sin()
        expected = (waves.sum(-1) / width**0.5).masked_fill(distances < 0, -torch.inf).softmax(-1)
        assert (expected.amax(-1)[:, -1] > 1.5 / 16).all()  # not uniform
        torch.testing.assert_close(mine, expected.expand_as(mine), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("source", ["nothing", "distance"])
def test_scores_from_no_token_are_the_same_with_a_cache_and_in_both_kernels(source):
    gpt = of_source(source, waves=source == "distance", positions="rotary")
    tokens = torch.arange(32).view(2, 16)
    with torch.no_grad():
        whole, caches = gpt(tokens), gpt.new_caches()
        parts = torch.cat([gpt(piece, caches) for piece in tokens.split([7, 1, 1, 7], dim=1)], dim=1)
        plain = gpt.hidden(gpt.token_embedding(tokens), torch.arange(16), weights=[])
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(plain, whole, rtol=1e-5, atol=1e-5)


def test_only_scores_from_tokens_have_queries_and_keys():
    names = {source: set(of_source(source, num_layers=1).state_dict()) for source in ("tokens", "distance", "nothing")}
    of_queries = {f"blocks.0.attention.{role}.weight" for role in ("query", "key")}
    assert names["tokens"] - names["nothing"] == of_queries
    assert names["distance"] - names["nothing"] == {"blocks.0.attention.distance_key"}
