"""Attention kernels agree, and the future is invisible."""

import pytest
import torch
from torch.nn import functional

from oelm.core.model.attention import BLOCK, block_causal_attention
from oelm.core.model.initialization import build
from small_runs import small_run


@pytest.mark.parametrize("time", [1, BLOCK - 1, BLOCK, 2 * BLOCK + 17])
def test_block_causal_attention_equals_the_fused_kernel(time):
    inputs = [torch.randn(2, 3, time, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    ours = block_causal_attention(*inputs, dropout=0.0)
    fused = functional.scaled_dot_product_attention(*inputs, is_causal=True)
    torch.testing.assert_close(ours, fused, rtol=1e-6, atol=1e-6)  # our softmax sums in float32
    probe = torch.randn_like(fused)
    for mine, theirs in zip(
        torch.autograd.grad(ours, inputs, probe), torch.autograd.grad(fused, inputs, probe), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_no_position_sees_the_future():
    run = small_run()
    gpt = build(run.model, run.seeds).double()
    tokens = torch.randint(0, 64, (1, 16))
    changed = tokens.clone()
    changed[0, 10:] = (changed[0, 10:] + 1) % 64
    with torch.no_grad():
        before, after = gpt(tokens), gpt(changed)
    assert torch.equal(before[:, :10], after[:, :10])
    assert not torch.allclose(before[:, 10:], after[:, 10:])


@pytest.mark.parametrize("pieces", [[16], [1] * 16, [7, 1, 1, 7]])
def test_hidden_states_with_a_cache_equal_those_without(pieces):
    run = small_run("frozen_half")
    gpt = build(run.model, run.seeds).double()
    tokens = torch.randint(0, 64, (2, 16))
    caches = gpt.new_caches()
    with torch.no_grad():
        whole = gpt(tokens)
        parts = torch.cat([gpt(piece, caches) for piece in tokens.split(pieces, dim=1)], dim=1)
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)
