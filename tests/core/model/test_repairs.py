"""A repair begins as if it were not there, computes what it says, and looks back only at its own sequence."""

import pytest
import torch

from bare_loop import moved, parameters, start
from oelm.core.config import Seeds
from oelm.core.model import attention
from oelm.core.model.attention import NOWHERE
from oelm.core.model.initialization import build
from oelm.core.model.repairs import convolved, shifted
from oelm.core.repairs import Convolution, Repairs, Residual, Shift
from oelm.core.scores import Scores, Temperature
from small_runs import SMALL, small_model, small_run

PROJECTIONS = ["query", "key", "value", "output", "up", "down"]
EVERYTHING = Repairs(
    residual=Residual(rank=2, on=PROJECTIONS, nonlinear=True),
    shift=Shift(per="channel", on=["key", "value"]),
    convolution=Convolution(width=3),
)
REPAIRS = {
    "residual": Repairs(residual=Residual(rank=2, on=PROJECTIONS)),
    "nonlinear": Repairs(residual=Residual(rank=2, on=PROJECTIONS, nonlinear=True)),
    "shift_by_head": Repairs(shift=Shift(per="head", on=["value"])),
    "shift_by_channel": Repairs(shift=Shift(per="channel", on=["key", "value"])),
    "convolution": Repairs(convolution=Convolution(width=3)),
    "everything": EVERYTHING,
}
SCORES = Scores(temperature=Temperature(kind="per_head"), query_key_norm=True, query_key_width=6)
TOKENS = torch.randint(0, 64, (2, 16), generator=torch.Generator().manual_seed(1))


def shaken(gpt):
    """In double precision, with every number elsewhere than at its start."""
    gpt, generator = gpt.double(), torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return gpt


@pytest.mark.parametrize("name", REPAIRS)
def test_a_repaired_model_begins_bit_for_bit_as_the_plain_one(name):
    plain, repaired = (build(small_model("frozen_orthogonal", repairs=r), Seeds()) for r in (Repairs(), REPAIRS[name]))
    assert torch.equal(plain(TOKENS), repaired(TOKENS))
    assert not torch.equal(shaken(plain)(TOKENS), shaken(repaired)(TOKENS))


def test_a_residual_is_the_merged_matrix():
    repairs = Repairs(residual=Residual(rank=2, on=PROJECTIONS))
    repaired, plain = shaken(build(small_model(repairs=repairs), Seeds())), build(small_model(), Seeds()).double()
    state = repaired.state_dict()
    merged = {name: value for name, value in state.items() if name in plain.state_dict()}
    for path in [name.removesuffix("_residual_in") for name in state if name.endswith("_residual_in")]:
        merged[f"{path}.weight"] = (
            state[f"{path}.weight"] + state[f"{path}_residual_out"] @ state[f"{path}_residual_in"]
        )
    plain.load_state_dict(merged)
    torch.testing.assert_close(repaired(TOKENS), plain(TOKENS), rtol=1e-10, atol=1e-10)


def test_a_temperature_is_a_scale_of_the_queries_of_its_head():
    scores = Scores(temperature=Temperature(kind="per_head"))
    warm, plain = shaken(build(small_model(scores=scores), Seeds())), build(small_model(), Seeds()).double()
    state = warm.state_dict()
    merged = {name: value for name, value in state.items() if name in plain.state_dict()}
    for path in [name.removesuffix(".temperature") for name in state if name.endswith(".temperature")]:
        heads = state[f"{path}.query.weight"].unflatten(0, (4, -1))
        merged[f"{path}.query.weight"] = (heads * state[f"{path}.temperature"][:, None, None]).flatten(0, 1)
    plain.load_state_dict(merged)
    torch.testing.assert_close(warm(TOKENS), plain(TOKENS), rtol=1e-10, atol=1e-10)


def test_a_shift_adds_a_share_of_the_predecessor():
    x = torch.arange(12.0).view(1, 2, 3, 2)
    share = torch.tensor([[1.0, 10.0], [0.0, 2.0]])
    made = shifted(x, share, "key", None, NOWHERE)
    assert torch.equal(made[0, :, 0], x[0, :, 0])
    assert torch.equal(made[0, :, 1:], x[0, :, 1:] + share[:, None] * x[0, :, :-1])


def test_a_convolution_is_torchs_causal_depthwise_one():
    x, weight = torch.randn(2, 7, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    padded = torch.nn.functional.pad(x, (0, 0, 2, 0)).transpose(1, 2)
    theirs = torch.nn.functional.conv1d(padded, weight.flip(0).T[:, None], groups=4).transpose(1, 2)
    torch.testing.assert_close(convolved(x, weight, None, NOWHERE), x + theirs)


@pytest.mark.parametrize("positions", ["learned", "rotary", "none"])
@pytest.mark.parametrize("pieces", [[1] * 16, [7, 1, 1, 7]], ids=str)
def test_with_a_cache_all_options_give_what_they_give_without(positions, pieces):
    gpt = shaken(build(small_model(positions=positions, scores=SCORES, repairs=EVERYTHING), Seeds()))
    caches = gpt.new_caches()
    with torch.no_grad():
        found = torch.cat([gpt(piece, caches) for piece in TOKENS.split(pieces, dim=1)], dim=1)
        torch.testing.assert_close(found, gpt(TOKENS), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("positions", ["learned", "rotary", "none"])
def test_padding_before_a_sequence_changes_nothing(positions):
    gpt = shaken(build(small_model(positions=positions, scores=SCORES, repairs=EVERYTHING), Seeds()))
    padded = torch.cat([torch.zeros(2, 3, dtype=torch.long), TOKENS[:, :13]], dim=1)
    real = torch.arange(16).expand(2, 16) >= 3
    places = torch.arange(16)
    visible = ((places <= places[:, None]) & (real[:, None] | (places == places[:, None])))[:, None]
    counted = (real.cumsum(1) - 1).clamp(min=0)
    with torch.no_grad():
        found = gpt.hidden(gpt.token_embedding(padded), counted, visible=visible)[:, 3:]
        torch.testing.assert_close(found, gpt(TOKENS[:, :13]), rtol=1e-9, atol=1e-9)


def test_no_position_sees_the_future():
    changed = TOKENS.clone()
    changed[:, 10:] = (changed[:, 10:] + 1) % SMALL["vocabulary"]
    for settings in ({}, {"positions": "rotary", "scores": SCORES, "repairs": EVERYTHING}):
        gpt = shaken(build(small_model(**settings), Seeds()))
        with torch.no_grad():
            before, after = gpt(TOKENS), gpt(changed)
        assert torch.equal(before[:, :10], after[:, :10])
        assert not torch.allclose(before[:, 10:], after[:, 10:])


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_attention_in_half_precision_stays_in_half_precision(positions, monkeypatch):
    """Weights are float32 in mixed precision; queries that took their precision would meet a slower kernel."""
    met = []
    kernels = {"causal_attention": attention.causal_attention, "masked_attention": attention.masked_attention}
    for name, kernel in kernels.items():

        def spied(q, k, v, *more, kernel=kernel, **options):
            met.extend(each.dtype for each in (q, k, v))
            return kernel(q, k, v, *more, **options)

        monkeypatch.setattr(attention, name, spied)
    gpt = build(small_model(positions=positions, scores=SCORES, repairs=EVERYTHING), Seeds())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        gpt(TOKENS)
    assert met
    assert set(met) == {torch.bfloat16}


@pytest.mark.parametrize(
    "mode",
    [{}, {"precision": "bfloat16"}, pytest.param({"compile": "on"}, marks=pytest.mark.trial)],
    ids=["plain", "half", "compiled"],
)
def test_everything_that_is_added_moves_and_what_is_frozen_does_not(mode, token_folder):
    run = small_run("frozen_orthogonal_repaired", steps=4, weight_decay=0.5)
    model = {"positions": "rotary", "repairs": EVERYTHING.resolved(d_model=32)}
    run = run.model_copy(update={"model": run.model.model_copy(update=model)})
    gpt, _, steps = start(run, token_folder, **mode)
    before = parameters(gpt)
    assert len(list(steps)) == 4
    resting = {name for name in before if name.endswith((".query.weight", ".key.weight"))}
    assert moved(before, parameters(gpt)) == set(before) - resting
