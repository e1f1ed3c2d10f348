"""The loss as a GPU makes it, on a CPU: the plain one in value and gradients, at every division into chunks."""

import shutil

import pytest
import torch
from torch.nn import functional

from oelm.run.training import region
from oelm.run.training.loss import backward, summed_cross_entropy

POSITIONS, WIDTH, VOCABULARY = 300, 24, 97
SCALE = 1 / 7


@pytest.fixture
def _as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(region, "DEVICES", {"cpu"})


def inputs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(POSITIONS, WIDTH, generator=generator).to(dtype).requires_grad_()
    weight = torch.randn(VOCABULARY, WIDTH, generator=generator).to(dtype).requires_grad_()
    targets = torch.randint(0, VOCABULARY, (POSITIONS,), generator=generator)
    targets[:2] = torch.tensor([0, VOCABULARY - 1])  # the ends of the vocabulary too
    return hidden, weight, targets


def plain(hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> list[torch.Tensor]:
    """Loss and gradients in float64, of the same numbers."""
    hidden, weight = (each.detach().double().requires_grad_() for each in (hidden, weight))
    loss = SCALE * functional.cross_entropy(hidden @ weight.T, targets, reduction="sum")
    return [loss.detach(), *torch.autograd.grad(loss, (hidden, weight))]


@pytest.mark.usefixtures("_as_on_a_gpu")
@pytest.mark.parametrize("rows", [1, 64, 299, 300, 301])
def test_it_is_the_plain_loss_at_every_division_into_chunks(rows, monkeypatch):
    monkeypatch.setattr(region, "chunk_rows", lambda *given, **options: rows)
    given = inputs(torch.float64)
    loss = summed_cross_entropy(*given, scale=SCALE)
    backward(loss)
    expected = plain(*given)
    torch.testing.assert_close(loss.detach(), expected[0], rtol=1e-13, atol=0)
    for mine, theirs in zip((given[0].grad, given[1].grad), expected[1:], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-14)


@pytest.mark.usefixtures("_as_on_a_gpu")
def test_under_autocast_only_the_logits_and_their_gradient_are_rounded(monkeypatch):
    """Products of rounded factors are summed and stored in float32, chunk after chunk."""
    monkeypatch.setattr(region, "chunk_rows", lambda *given, **options: 128)
    hidden, weight, targets = inputs(torch.float32)
    with torch.no_grad():  # numbers that bfloat16 has, so that only what the loss itself rounds is seen
        hidden.copy_(hidden.bfloat16())
        weight.copy_((weight / 8).bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = summed_cross_entropy(hidden, weight, targets, scale=SCALE)
    backward(loss)
    assert loss.dtype == hidden.grad.dtype == weight.grad.dtype == torch.float32
    expected = plain(hidden, weight, targets)
    torch.testing.assert_close(loss.detach().double(), expected[0], rtol=1e-4, atol=0)
    gradient = hidden.detach().bfloat16() @ weight.detach().bfloat16().T
    region.loss_and_gradient(gradient, targets, torch.tensor(SCALE))
    exact = gradient.double() @ weight.detach().double(), gradient.double().T @ hidden.detach().double()
    for mine, product, theirs in zip((hidden.grad, weight.grad), exact, expected[1:], strict=True):
        assert (mine - product).norm() < 1e-6 * product.norm()
        assert (mine - theirs).norm() < 2**-8 * theirs.norm()


@pytest.mark.usefixtures("_as_on_a_gpu")
def test_a_frozen_output_layer_gets_no_gradient_and_an_outer_factor_reaches_the_hidden_states():
    hidden, weight, targets = inputs(torch.float64)
    backward(summed_cross_entropy(hidden, weight.detach(), targets, scale=SCALE))
    once = hidden.grad
    (thrice,) = torch.autograd.grad(3 * summed_cross_entropy(hidden, weight.detach(), targets, scale=SCALE), hidden)
    assert weight.grad is None
    torch.testing.assert_close(thrice, 3 * once)


@pytest.mark.skipif(shutil.which("g++") is None, reason="for torch's compiler: apt-get install g++")
@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float32, marks=pytest.mark.trial)], ids=str)
def test_compiled_it_gives_the_numbers_of_the_uncompiled_function(dtype):
    """In place, in the products' own type, on rows that begin at aligned places; any row alone would do as well."""
    generator = torch.Generator().manual_seed(1)
    logits = (3 * torch.randn(70, 128, generator=generator)).to(dtype)
    targets, scale = torch.arange(70) % VOCABULARY, torch.tensor(SCALE)
    mine, theirs = (logits.clone()[:, :VOCABULARY] for _ in range(2))
    loss = region.compiled_function()(mine, targets, scale)
    expected = region.loss_and_gradient(theirs, targets, scale)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(mine, theirs, rtol=2e-6 if dtype == torch.float32 else 2**-7, atol=1e-9)
    scores = logits[:, :VOCABULARY].double().requires_grad_()
    (reference,) = torch.autograd.grad(SCALE * functional.cross_entropy(scores, targets, reduction="sum"), scores)
    torch.testing.assert_close(mine.double(), reference, rtol=2**-7 if dtype == torch.bfloat16 else 1e-5, atol=1e-7)


def test_chunks_have_4096_to_8192_rows_where_there_are_as_many_positions():
    for vocabulary in (256, 50257, 151_936):
        for positions in (1, 4095, 4096, 8192, 8193, 15_360, 32_768, 65_536):
            for dtype in (torch.bfloat16, torch.float32):
                rows = region.chunk_rows(positions, vocabulary, dtype, compiled=True)
                assert rows <= region.MOST_ROWS
                assert rows >= min(positions, region.LEAST_ROWS) or -(-positions // rows) == -(-positions // 4096)
    assert region.chunk_rows(32_768, 50257, torch.bfloat16, compiled=True) == 8192
    assert region.chunk_rows(8 * 512, 50257, torch.bfloat16, compiled=True) == 4096
    assert region.chunk_rows(30 * 512, 50257, torch.bfloat16, compiled=True) == 7680  # twice, not 8,192 and 7,168


def test_uncompiled_chunks_are_small():
    rows = region.chunk_rows(32_768, 50257, torch.bfloat16, compiled=False)
    assert 4 * rows * 50257 <= region.EAGER_CHUNK_BYTES


@pytest.mark.usefixtures("_as_on_a_gpu")
def test_the_factor_of_a_plain_backward_pass_is_known_without_looking_at_it(monkeypatch):
    looked: list[torch.Tensor] = []
    hidden, weight, targets = inputs(torch.float64)
    plain_loss = summed_cross_entropy(hidden, weight, targets)
    loss = summed_cross_entropy(hidden, weight, targets)
    item = torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "item", lambda tensor: looked.append(tensor) or item(tensor))
    backward(loss)
    assert looked == []
    plain_loss.backward()
    assert len(looked) == 1
