"""Attention kernels agree, and the future is invisible."""

import pytest
import torch
from torch.nn import functional

from oelm.core.model.attention import BLOCK, block_causal_attention


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
