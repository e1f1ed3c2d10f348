"""How projections start, and how a partly frozen one is stored."""

import pytest
import torch

from oelm.config import Projection
from oelm.model.initialization import build
from oelm.model.projection import orthonormal_rows, starting_weight
from small_runs import small_run

D, HEADS = 64, 4


def start(kind: str, gain: float = 1.0) -> torch.Tensor:
    draw = torch.randn(D, D, generator=torch.Generator().manual_seed(1))
    return starting_weight(draw, Projection(start=kind, gain=gain), num_heads=HEADS, num_layers=4).double()


def test_head_wise_starts_are_orthonormal_per_head():
    for head in start("head_orthogonal").chunk(HEADS):
        torch.testing.assert_close(head @ head.T, torch.eye(D // HEADS, dtype=torch.float64), atol=1e-6, rtol=0)


def test_head_wise_starts_are_not_orthogonal_as_a_whole():
    weight = start("head_orthogonal")
    assert (weight @ weight.T - torch.eye(D)).abs().max() > 0.05


def test_global_starts_are_orthonormal_as_a_whole_and_so_in_every_head():
    weight = start("orthogonal")
    torch.testing.assert_close(weight @ weight.T, torch.eye(D, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("kind", "deviation"),
    [
        ("normal", 0.02),
        ("scaled_normal", D**-0.5),
        ("xavier", D**-0.5),
        ("orthogonal", D**-0.5),
        ("head_orthogonal", D**-0.5),
        ("residual_normal", 0.02 / 8**0.5),
    ],
)
def test_scale_of_every_start(kind, deviation):
    assert start(kind).std().item() == pytest.approx(deviation, rel=0.05)


def test_gain_multiplies_the_start():
    torch.testing.assert_close(start("head_orthogonal", gain=2.0), 2 * start("head_orthogonal"))


def test_orthogonal_starts_have_no_preferred_sign():
    """Plain QR fixes the sign of R's diagonal, so its Q is not uniformly distributed."""
    firsts = [
        orthonormal_rows(torch.randn(4, 4, generator=torch.Generator().manual_seed(seed)))[0, 0] for seed in range(400)
    ]
    assert abs(torch.stack(firsts).mean()) < 0.1


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


def build_of(arm: str, seed: int = 0):
    run = small_run(arm, seed=seed)
    return build(run.model, run.seeds)
