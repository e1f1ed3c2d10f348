"""Which arms have something to draw: exactly those whose treated weights depend on the projections' seed."""

import pytest
import torch

from oelm.core.arms import GPT_ARMS, arm
from oelm.core.config import Encoder, Seeds
from oelm.core.model.initialization import build
from oelm.core.model.parameters import role_of
from oelm.core.options import OPTIONS, addition_of, draws_what_it_treats
from oelm.core.parts import BASELINE
from oelm.core.starts import STARTS
from small_runs import small_model


def is_untreated(model, name):
    role = role_of(name)
    return addition_of(name) is None and (
        role not in dict(BASELINE.items()) or model.parts.of(role) == BASELINE.of(role)
    )


@pytest.mark.parametrize("name", GPT_ARMS)
def test_an_arm_has_draws_where_another_seed_of_projections_gives_other_treated_weights(name):
    model = small_model(name)
    one, other = (build(model, Seeds(projections=seed)).state_dict() for seed in (0, 1))
    redrawn = [key for key in one if not torch.equal(one[key], other[key]) and not is_untreated(model, key)]
    assert draws_what_it_treats(model) == bool(redrawn)


def test_an_option_that_is_drawn_has_draws_beside_parts_of_the_baseline():
    model = small_model("trained", repairs={"residual": {"rank": 2, "on": ["query"]}})
    one, other = (build(model, Seeds(projections=seed)).state_dict() for seed in (0, 1))
    added = [key for key in one if addition_of(key) is not None]
    assert any(not torch.equal(one[key], other[key]) for key in added)
    assert draws_what_it_treats(model)


@pytest.mark.parametrize(
    ("name", "has_draws"),
    [("fine_tuned", False), ("frozen_pretrained", False), ("frozen_orthogonalised", False), ("frozen_normal", True)],
)
def test_of_given_weights_only_what_starts_anew_is_drawn(name, has_draws):
    assert draws_what_it_treats(Encoder(parts=arm(name, kind="encoder").parts)) == has_draws


def test_every_kind_of_row_says_whether_it_draws():
    assert {name for name, start in STARTS.items() if not start.is_drawn} == {
        "identity", "dense_identity", "ones", "keep", "orthogonalised",
    }  # fmt: skip
    assert {key for key, option in OPTIONS.items() if option.draws} == {"repairs.residual"}
