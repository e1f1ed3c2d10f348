"""The chunked loss is the plain one: value and gradients."""

import pytest
import torch
from torch.nn import functional

from oelm.run.training import loss as loss_module
from oelm.run.training.loss import position_losses, summed_cross_entropy

POSITIONS, WIDTH, VOCABULARY = 300, 24, 97


@pytest.fixture(params=[128, 100_000])
def chunk(request, monkeypatch):
    monkeypatch.setattr(loss_module, "chunk_rows", lambda vocabulary, dtype: request.param)
    return request.param


def inputs(dtype: torch.dtype):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(POSITIONS, WIDTH, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(VOCABULARY, WIDTH, generator=generator).to(dtype).requires_grad_()
    return hidden, weight, torch.randint(0, VOCABULARY, (POSITIONS,), generator=generator)


def test_chunked_loss_equals_the_plain_one_in_value_and_gradients(chunk):
    hidden, weight, targets = inputs(torch.float64)
    plain = functional.cross_entropy(hidden @ weight.T, targets)
    chunked = summed_cross_entropy(hidden, weight, targets, scale=1 / POSITIONS)
    torch.testing.assert_close(chunked, plain, rtol=1e-13, atol=0)
    for mine, theirs in zip(
        torch.autograd.grad(chunked, (hidden, weight)), torch.autograd.grad(plain, (hidden, weight)), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-14)


def test_an_outer_factor_reaches_the_gradients():
    hidden, weight, targets = inputs(torch.float64)
    once = torch.autograd.grad(summed_cross_entropy(hidden, weight, targets), (hidden, weight))
    thrice = torch.autograd.grad(3 * summed_cross_entropy(hidden, weight, targets), (hidden, weight))
    for one, three in zip(once, thrice, strict=True):
        torch.testing.assert_close(three, 3 * one)


def test_a_frozen_output_layer_gets_no_gradient():
    hidden, weight, targets = inputs(torch.float64)
    summed_cross_entropy(hidden, weight.detach(), targets).backward()
    assert weight.grad is None
    assert hidden.grad is not None


def test_under_autocast_the_loss_is_close_and_the_gradients_stay_float32():
    hidden, weight, targets = inputs(torch.float32)
    plain = functional.cross_entropy(hidden @ weight.T, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = summed_cross_entropy(hidden, weight, targets, scale=1 / POSITIONS)
    loss.backward()
    assert loss.dtype == weight.grad.dtype == hidden.grad.dtype == torch.float32
    torch.testing.assert_close(loss, plain, rtol=2e-2, atol=0)


def test_position_losses_are_those_of_the_plain_loss(chunk):
    hidden, weight, targets = inputs(torch.float64)
    plain = functional.cross_entropy(hidden @ weight.T, targets, reduction="none")
    torch.testing.assert_close(position_losses(hidden, weight, targets), plain.detach(), rtol=1e-12, atol=1e-13)


def test_logits_of_all_positions_are_never_held_at_once():
    """What one call allocates at its peak is a chunk's worth, not the 206 MB that all logits would take."""
    hidden = torch.randn(1024, 8)
    weight = torch.randn(50257, 8, requires_grad=True)
    targets = torch.randint(0, 50257, (1024,))
    summed_cross_entropy(hidden[:64], weight, targets[:64]).backward()
    with torch.profiler.profile(profile_memory=True) as profile:
        summed_cross_entropy(hidden, weight, targets)
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert 0 < largest <= loss_module.CHUNK_BYTES[torch.float32]
