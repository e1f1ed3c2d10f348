"""Every start is a pure function of (seed, name): arms differ only in the treatment."""

import itertools

import pytest
import torch
from torch.nn import functional

from oelm.core.arms import GPT_ARMS, RIVALS
from oelm.core.config import Seeds
from oelm.core.model.initialization import build
from oelm.core.model.parameters import layer_of, role_of
from oelm.core.model.projection import matrices_of
from oelm.core.moves import Always, Never
from oelm.core.options import ADDITIONS
from oelm.core.parts import BASELINE, ROLES, Part
from oelm.core.starts import STARTS
from oelm.machine.errors import UserError
from small_runs import small_run


def weights(arm: str, seeds: Seeds | None = None) -> dict[str, torch.Tensor]:
    run = small_run(arm)
    return matrices_of(build(run.model, seeds or Seeds()))


def without_a_matrix(arm: str) -> bool:
    return any(STARTS[part.start].matrix_free for _, part in GPT_ARMS[arm].parts.items())


def differing(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> set[str]:
    """Of the weights that both have."""
    return {name for name in a.keys() & b.keys() if not torch.equal(a[name], b[name])}


def weights_where(arm: str, holds) -> set[str]:
    """Names of the matrices and gains for whose role `holds`, asked of what the arm and the baseline say there."""
    model = small_run(arm).model
    names = [name for name in weights(arm) if name.endswith("weight") and role_of(name) in ROLES]
    return {name for name in names if holds(role_of(name), model.part_at(role_of(name), layer_of(name)))}


def starts_otherwise(role: str, part: Part) -> bool:
    return (part.start, part.gain) != (BASELINE.of(role).start, BASELINE.of(role).gain)


def draws_apart(role: str, part: Part) -> bool:
    start = STARTS[part.start].matrix_free
    if start is not None and not start.stores:
        return False
    return role in ("query", "key") or (part != BASELINE.of(role) and part.start != "ones")


BASE = weights("trained")


@pytest.mark.parametrize("arm", GPT_ARMS)
def test_an_arm_differs_in_what_it_says_and_each_seed_moves_what_is_its(arm):
    found = weights(arm)
    assert BASE.keys() <= found.keys()
    assert all(role_of(name) in ADDITIONS for name in found.keys() - BASE.keys())
    narrower = {name for name, value in BASE.items() if value.shape != found[name].shape}  # of rivals
    assert differing(BASE, found) == weights_where(arm, starts_otherwise) | narrower

    added = {name for name in found if name.endswith("_residual_in")}
    assert differing(found, weights(arm, Seeds(projections=1))) == weights_where(arm, draws_apart) | added
    rest = weights_where(arm, lambda role, part: role not in ("norm", "query", "key") and not draws_apart(role, part))
    assert differing(found, weights(arm, Seeds(weights=1))) == rest
    assert differing(found, weights(arm, Seeds(data=1))) == set()

    # No two matrices are of one draw: those that are drawn as they stand would be multiples of each other.
    directions = [
        (name, functional.normalize(value.double().flatten(), dim=0))
        for name, value in found.items()
        if value.dim() == 2 and value.std() > 0 and not torch.equal(value, torch.eye(*value.shape))
    ]
    for (name, one), (other, another) in itertools.combinations(directions, 2):
        if one.shape == another.shape:
            assert abs(one @ another) < 0.5, (name, other)


TWINS = {
    "frozen_normal": "trained",
    "frozen_embedding": "trained",
    "frozen_norms": "trained",
    "reservoir": "trained_reservoir",
    "frozen_half": "trained_head_orthogonal",
    "frozen_quarter": "trained_head_orthogonal",
    "every_n": "trained_head_orthogonal",
    "late_unfreeze": "trained_head_orthogonal",
    "progressive_unfreeze": "trained_head_orthogonal",
    "train_then_freeze": "trained_head_orthogonal",
}


def twin_of(arm: str) -> str:
    """The arm that starts as this one and always moves."""
    if arm in TWINS:
        return TWINS[arm]
    rest = arm.removeprefix("frozen_")
    return f"trained_{rest}" if f"trained_{rest}" in GPT_ARMS else f"trained_orthogonal_{rest}"


RESTING = [arm for arm in GPT_ARMS if not arm.startswith("trained") and not without_a_matrix(arm) and arm not in RIVALS]


@pytest.mark.parametrize("arm", RESTING)
def test_every_arm_that_rests_starts_bit_equal_to_its_trained_twin(arm):
    twin = GPT_ARMS[twin_of(arm)].parts
    assert all(isinstance(part.moves, Always) for _, part in twin.items())
    assert weights(twin_of(arm)).keys() == weights(arm).keys()
    assert differing(weights(twin_of(arm)), weights(arm)) == set()


def test_every_trained_twin_starts_as_another_arm_does():
    twins = {twin_of(arm) for arm in RESTING}
    assert twins == {arm for arm in GPT_ARMS if arm.startswith("trained")}


def test_a_start_depends_neither_on_threads_nor_on_the_global_generator():
    reference = weights("frozen_head_orthogonal")
    torch.manual_seed(123)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert differing(reference, weights("frozen_head_orthogonal")) == set()
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("sizes", [{"d_model": 100_000_000}, {"num_layers": 10_000, "d_model": 100_000}])
def test_a_model_that_no_memory_holds_is_refused_at_once(sizes):
    model = small_run("trained").model.model_copy(update=sizes)
    with pytest.raises(UserError, match=r"GiB of weights, and this machine has [\d,]+ GiB of memory"):
        build(model, Seeds())


def started_as(start: str, **part: object) -> dict[str, torch.Tensor]:
    spec = Part(start=start, **part)
    run = small_run()
    parts = BASELINE.model_copy(update={"query": spec, "key": spec})
    return matrices_of(build(run.model.model_copy(update={"parts": parts}), Seeds()))


def test_a_shared_start_is_one_matrix_in_each_layer_drawn_as_the_orthogonal_query():
    shared, apart = started_as("shared_orthogonal"), started_as("orthogonal")
    queries = [name for name in shared if name.endswith("attention.query.weight")]
    for name in queries:
        assert torch.equal(shared[name], shared[name.replace("query", "key")])
        assert torch.equal(shared[name], apart[name])
        assert not torch.equal(apart[name], apart[name.replace("query", "key")])
    assert len({shared[name].sum().item() for name in queries}) == len(queries) > 1
    assert differing(shared, apart) == {name.replace("query", "key") for name in queries}


def test_a_dense_identity_is_the_identity_bit_for_bit_until_it_is_trained():
    run, tokens = small_run(), torch.arange(16)[None]

    def hidden(start: str) -> torch.Tensor:
        spec = Part(start=start, moves=Never())
        parts = BASELINE.model_copy(update={"query": spec, "key": spec})
        return build(run.model.model_copy(update={"parts": parts}), Seeds())(tokens)

    assert torch.equal(hidden("dense_identity"), hidden("identity"))
    assert Part(start="dense_identity").moves == Always()
