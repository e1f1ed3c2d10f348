"""The output layer: the token embedding, or one of its own that starts apart from everything else."""

import torch

from oelm.core.config import Seeds
from oelm.core.model.initialization import build
from oelm.core.model.parameters import decays, role_of
from oelm.core.starts import WEIGHT_STANDARD_DEVIATION
from small_runs import small_model

NAME = "output_layer.weight"


def test_an_output_layer_of_its_own_changes_no_other_start():
    tied, untied = (build(small_model("frozen_embedding", tied=tied), Seeds()).state_dict() for tied in (True, False))
    assert untied.keys() - tied.keys() == {NAME}
    assert all(torch.equal(value, untied[name]) for name, value in tied.items())
    assert not torch.equal(untied[NAME], untied["token_embedding.weight"])
    assert abs(untied[NAME].std().item() / WEIGHT_STANDARD_DEVIATION - 1) < 0.1


def test_an_output_layer_of_its_own_draws_from_the_seed_of_the_weights_whatever_the_arm():
    def start(arm: str, **seeds: int) -> torch.Tensor:
        return build(small_model(arm, tied=False), Seeds(**seeds)).output_weight

    first = start("trained")
    assert torch.equal(first, start("frozen_embedding", projections=1))
    assert not torch.equal(first, start("trained", weights=1))


def test_an_output_layer_of_its_own_makes_the_logits_and_decays():
    gpt = build(small_model(tied=False), Seeds())
    hidden = gpt(torch.arange(6)[None])
    assert torch.equal(gpt.logits(hidden), hidden @ gpt.output_layer.weight.T)
    assert decays(NAME, role_of(NAME))
