"""What a projection is, and how a partly frozen one is stored."""

import torch
from torch import nn

from oelm.model.initialization import build
from oelm.model.projection import projection
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
