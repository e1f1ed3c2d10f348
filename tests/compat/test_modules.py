"""The originals' classes: orthonormal, frozen where they say so, causal, and trainable by any torch optimizer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import oelm
from oelm.compat.modules import (
    OELMMultiHeadAttention,
    OELMTransformerBlock,
    OrthogonalLinear,
    OrthogonalMultiHeadAttention,
)
from oelm.machine.errors import UserError
from small_runs import REPOSITORY, warm_python

D_MODEL, HEADS = 32, 4


def _is_orthonormal(rows: Tensor) -> bool:
    product = rows.double() @ rows.double().T
    return torch.allclose(product, torch.eye(len(rows), dtype=torch.float64), atol=1e-6)


def _train(module: nn.Module, *, steps: int = 3) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """State before and after steps of a plain AdamW over all parameters, with decay."""
    before = {name: value.clone() for name, value in module.state_dict().items()}
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, weight_decay=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        x_BTD = torch.randn(2, 6, D_MODEL)
        (module(x_BTD) - x_BTD.flip(1)).square().mean().backward()
        optimizer.step()
    return before, module.state_dict()


@pytest.mark.parametrize("method", ["qr", "svd"])
def test_rows_or_columns_of_an_orthogonal_linear_are_orthonormal(method: str) -> None:
    layer = OrthogonalLinear(48, 16, ortho_method=method)
    assert layer.weight.shape == (16, 48)
    assert _is_orthonormal(layer.weight)
    assert _is_orthonormal(OrthogonalLinear(16, 48, ortho_method=method).weight.T)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match=r"'cayley' is not one of qr, svd"):
        OrthogonalLinear(4, 4, ortho_method="cayley")
    with pytest.raises(UserError, match="not divisible"):
        OELMMultiHeadAttention(32, 5)


def test_a_frozen_weight_is_a_buffer_with_the_key_of_its_trained_twin() -> None:
    frozen, trained = (OrthogonalLinear(8, 8, bias=True, freeze=freeze) for freeze in (True, False))
    assert [name for name, _ in frozen.named_buffers()] == ["weight"]
    assert [name for name, _ in frozen.named_parameters()] == ["bias"]
    assert not frozen.weight.requires_grad
    assert not list(trained.buffers())
    assert trained.weight.requires_grad
    trained.load_state_dict(frozen.state_dict())
    assert torch.equal(trained.weight, frozen.weight)


def test_a_diagnosis_counts_the_buffers_and_explains_who_misses_them() -> None:
    block = OELMTransformerBlock(D_MODEL, HEADS, 64)
    seen = sum(parameter.numel() for parameter in block.parameters())
    diagnosis = oelm.diagnose(block)
    assert diagnosis.problems == ()
    assert diagnosis.totals.frozen == 2 * D_MODEL * D_MODEL
    assert diagnosis.totals.total == seen + 2 * D_MODEL * D_MODEL
    assert any(f"parameters() alone counts {seen:,}" in note for note in diagnosis.notes)


def test_every_head_of_the_second_method_is_orthonormal() -> None:
    attention = OELMMultiHeadAttention(D_MODEL, HEADS)
    for projection in (attention.q_proj, attention.k_proj):
        assert all(_is_orthonormal(head) for head in projection.weight.chunk(HEADS))
        assert not _is_orthonormal(projection.weight)  # the heads were drawn apart


@pytest.mark.parametrize(
    ("module", "frozen"),
    [
        (lambda: OrthogonalMultiHeadAttention(D_MODEL, HEADS), {"W_q.weight", "W_k.weight"}),
        (lambda: OrthogonalMultiHeadAttention(D_MODEL, HEADS, freeze_qk=False), set()),
        (lambda: OELMMultiHeadAttention(D_MODEL, HEADS), {"q_proj.weight", "k_proj.weight"}),
        (
            lambda: OELMTransformerBlock(D_MODEL, HEADS, 64, ortho_method="svd"),
            {"attention.W_q.weight", "attention.W_k.weight"},
        ),
        (lambda: OELMTransformerBlock(D_MODEL, HEADS, 64, freeze_qk=False), set()),
    ],
    ids=["global", "global_trained", "head_wise", "block", "block_trained"],
)
def test_a_plain_optimizer_moves_everything_but_the_frozen(module, frozen: set[str]) -> None:
    torch.manual_seed(0)
    before, after = _train(module())
    assert {name for name in before if torch.equal(before[name], after[name])} == frozen


@pytest.mark.parametrize("make", [OrthogonalMultiHeadAttention, OELMMultiHeadAttention])
def test_no_position_sees_a_later_one(make) -> None:
    attention = make(D_MODEL, HEADS).eval()
    x_BTD = torch.randn(1, 6, D_MODEL)
    changed_BTD = x_BTD.clone()
    changed_BTD[:, 4:] += 1
    difference = (attention(x_BTD) - attention(changed_BTD)).abs().amax((0, 2))
    assert difference[:4].max() < 1e-6 < difference[4:].min()


def test_the_global_seed_decides_the_draw() -> None:
    def weight(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return OELMMultiHeadAttention(D_MODEL, HEADS).q_proj.weight

    assert torch.equal(weight(1), weight(1))
    assert not torch.equal(weight(1), weight(2))


MODEL = ["OrthogonalELMTransformer", "OELMConfig"]
FIRST = ["OrthogonalLinear", "OrthogonalMultiHeadAttention", "OELMTransformerBlock", *MODEL]
SECOND = ["OELMMultiHeadAttention", *MODEL]


def test_the_package_and_the_clone_offer_the_originals_names(monkeypatch) -> None:
    pytest.importorskip("transformers", reason="pip install 'oelm[hf]'")
    for name in {*FIRST, *SECOND}:
        assert getattr(oelm, name).__name__ == name
    places = {"modeling_oelm": FIRST, "modeling_oelm_v2": SECOND}
    code = "\n".join(f"from models.{module} import {', '.join(names)}" for module, names in places.items())
    monkeypatch.chdir(REPOSITORY)
    done = warm_python(code)
    assert done.returncode == 0, done.stderr
