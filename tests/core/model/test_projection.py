"""What a projection is, and how a partly frozen one is stored."""

import pytest
import torch
from torch import nn

from oelm.core.arms import GPT_ARMS
from oelm.core.model.initialization import build
from oelm.core.model.projection import MatrixFreeProjection, matrices_of, projection
from oelm.core.moves import Never
from oelm.core.parts import BASELINE, Part
from oelm.core.starts import STARTS
from small_runs import small_run


def test_a_partly_frozen_projection_is_stored_as_one_stock_weight():
    partly, plain = build_of("frozen_half"), build_of("trained")
    assert partly.state_dict().keys() == plain.state_dict().keys()
    query = partly.blocks[0].attention.query
    stored = partly.state_dict()["blocks.0.attention.query.weight"]
    assert torch.equal(stored, torch.cat([query.covered, query.free]))
    assert (query.covered.requires_grad, query.free.requires_grad) == (False, True)


def test_loading_splits_a_stock_weight_again():
    source, target = build_of("trained", seed=5), build_of("frozen_half")
    target.load_state_dict(source.state_dict())
    for name, value in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], value), name
    assert not target.blocks[0].attention.query.covered.requires_grad


def test_a_whole_projection_is_a_linear_layer_that_draws_nothing():
    torch.manual_seed(0)
    state = torch.get_rng_state()
    model = small_run("frozen_half").model
    whole = projection(model, "value", 0)
    assert isinstance(whole, nn.Linear)
    assert whole.bias is None
    assert not isinstance(projection(model, "query", 0), nn.Linear)
    assert torch.equal(torch.get_rng_state(), state)


def build_of(arm: str, seed: int = 0):
    run = small_run(arm, seed=seed)
    return build(run.model, run.seeds)


# ---- Without a matrix ----------------------------------------------------------------------------------------------

WITHOUT_A_MATRIX = [
    name for name, arm in GPT_ARMS.items() if any(STARTS[part.start].matrix_free for _, part in arm.parts.items())
]


@pytest.mark.parametrize("arm", WITHOUT_A_MATRIX)
def test_a_model_without_matrices_of_queries_computes_what_its_dense_twin_does(arm):
    """The twin has the same values as stored matrices: loss and gradients of all else agree in double precision."""
    free, dense = build_of(arm).double(), build_of("trained").double()
    dense.load_state_dict(matrices_of(free))
    tokens = torch.arange(12).view(2, 6)
    losses = []
    for gpt in (free, dense):
        loss = gpt.logits(gpt(tokens)).square().mean()
        loss.backward()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    theirs = dict(dense.named_parameters())
    for name, parameter in free.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("arm", ["frozen_hadamard", "identity_query"])
def test_what_stores_no_matrix_is_computed_in_the_precision_of_products(arm):
    gpt = build_of(arm)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert gpt(torch.arange(6)[None]).isfinite().all()
    attention = gpt.bfloat16().blocks[0].attention
    assert attention.query(torch.ones(1, 32, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert all(not parameter.is_floating_point() for parameter in attention.query.parameters())


def test_layers_can_have_no_matrix_while_the_others_are_the_baselines():
    run = small_run()
    part = Part(start="hadamard", moves=Never(), layers="odd", gain=2.0)
    model = run.model.model_copy(update={"parts": BASELINE.model_copy(update={"value": part})})
    first, second = (block.attention.value for block in build(model, run.seeds).blocks[:2])
    assert isinstance(first, nn.Linear)
    assert isinstance(second, MatrixFreeProjection)
    torch.testing.assert_close(second.weight @ second.weight.T, 4 * torch.eye(32))


@pytest.mark.parametrize("arm", ["frozen_hadamard", "frozen_selection"])
def test_a_block_without_matrices_is_one_graph(arm):
    block, x = build_of(arm).blocks[0], torch.randn(1, 4, 32, requires_grad=True)
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True)
    gradients = [torch.autograd.grad(each(x).square().sum(), x)[0] for each in (compiled, block)]
    torch.testing.assert_close(*gradients)
