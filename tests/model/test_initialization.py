"""Every start is a pure function of (seed, name): arms differ only in the treatment."""

import pytest
import torch

from oelm.arms import GPT_ARMS
from oelm.config import Seeds
from oelm.errors import UserError
from oelm.model.initialization import build
from small_runs import small_run


def weights(arm: str, seeds: Seeds | None = None) -> dict[str, torch.Tensor]:
    run = small_run(arm)
    return build(run.model, seeds or Seeds()).state_dict()


def differing(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in a if not torch.equal(a[name], b[name])}


@pytest.mark.parametrize("arm", GPT_ARMS)
def test_arms_with_one_seed_differ_only_in_queries_and_keys(arm):
    changed = differing(weights("trained"), weights(arm))
    assert all(name.endswith((".query.weight", ".key.weight")) for name in changed)
    assert bool(changed) == (GPT_ARMS[arm].query.start != "normal")


@pytest.mark.parametrize(
    ("trained", "frozen"),
    [
        ("trained", "frozen_normal"),
        ("trained_scaled_normal", "frozen_scaled_normal"),
        ("trained_orthogonal", "frozen_orthogonal"),
        ("trained_head_orthogonal", "frozen_head_orthogonal"),
        ("trained_head_orthogonal", "frozen_half"),
        ("trained_head_orthogonal", "late_unfreeze"),
    ],
)
def test_trained_and_frozen_twins_start_bit_equal(trained, frozen):
    assert differing(weights(trained), weights(frozen)) == set()


def test_the_projection_seed_moves_only_queries_and_keys():
    changed = differing(weights("trained"), weights("trained", Seeds(projections=1)))
    assert changed == {n for n in weights("trained") if n.endswith((".query.weight", ".key.weight"))}


def test_the_weight_seed_moves_everything_random_but_queries_and_keys():
    changed = differing(weights("trained"), weights("trained", Seeds(weights=1)))
    assert changed == {
        n for n in weights("trained") if "norm" not in n and "bias" not in n and "query" not in n and "key" not in n
    }


def test_the_data_seed_moves_no_weight():
    assert differing(weights("trained"), weights("trained", Seeds(data=1))) == set()


def test_a_start_depends_neither_on_threads_nor_on_the_global_generator():
    reference = weights("frozen_head_orthogonal")
    torch.manual_seed(123)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert differing(reference, weights("frozen_head_orthogonal")) == set()
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("sizes", [{"d_model": 100_000_000}, {"num_layers": 100_000_000}])
def test_a_model_that_no_memory_holds_is_refused_at_once(sizes):
    model = small_run("trained").model.model_copy(update=sizes)
    with pytest.raises(UserError, match=r"GiB of weights, and this machine has [\d,]+ GiB of memory"):
        build(model, Seeds())
