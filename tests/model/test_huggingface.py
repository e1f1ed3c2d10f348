"""The Hugging Face face of our GPT: same numbers as theirs, same files as ours, frozen after every load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers", reason="Hugging Face transformers is not installed: pip install 'oelm[hf]'")

from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from oelm.arms import GPT_ARMS
from oelm.config import Model, Run, Seeds
from oelm.data.tokens import TokenData
from oelm.errors import UserError
from oelm.model.huggingface import OELMConfig, OrthogonalELMTransformer
from oelm.model.initialization import build
from oelm.model.transformer import GPT
from oelm.run_directory import RunDirectory
from oelm.training.stored_model import load_stored, save_best

SIZES = {"vocabulary": 101, "seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 64}
QUERY_AND_KEY = {f"gpt.blocks.{layer}.attention.{name}.weight" for layer in (0, 1) for name in ("query", "key")}


def _config(arm: str = "frozen_head_orthogonal") -> OELMConfig:
    return OELMConfig(**SIZES, attention=GPT_ARMS[arm])


def _tokens() -> Tensor:
    return torch.randint(SIZES["vocabulary"], (2, 11), generator=torch.Generator().manual_seed(3))


def _frozen(model: torch.nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if not parameter.requires_grad}


def _assert_equal_states(one: torch.nn.Module, other: torch.nn.Module) -> None:
    left, right = one.state_dict(), other.state_dict()
    assert left.keys() == right.keys()
    assert [name for name in left if not torch.equal(left[name], right[name])] == []


# ---- The same function as theirs ------------------------------------------------------------------------------------


def _as_gpt2(gpt: GPT) -> GPT2LMHeadModel:
    """Hugging Face's GPT-2 with our weights; its attention biases, which ours has not, are zero."""
    config = GPT2Config(
        vocab_size=SIZES["vocabulary"],
        n_positions=SIZES["seq_len"],
        n_embd=SIZES["d_model"],
        n_layer=SIZES["num_layers"],
        n_head=SIZES["num_heads"],
        n_inner=SIZES["d_ff"],
        activation_function="gelu_new",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    theirs, ours = GPT2LMHeadModel(config).double().eval(), gpt.state_dict()
    state = {name: torch.zeros_like(value) for name, value in theirs.state_dict().items()}
    state["transformer.wte.weight"] = state["lm_head.weight"] = ours["token_embedding.weight"]
    state["transformer.wpe.weight"] = ours["position_embedding.weight"]
    for end in ("weight", "bias"):
        state[f"transformer.ln_f.{end}"] = ours[f"final_norm.{end}"]
    for layer in range(config.n_layer):
        block, theirs_block = f"blocks.{layer}", f"transformer.h.{layer}"
        for end in ("weight", "bias"):
            state[f"{theirs_block}.ln_1.{end}"] = ours[f"{block}.attention_norm.{end}"]
            state[f"{theirs_block}.ln_2.{end}"] = ours[f"{block}.feed_forward_norm.{end}"]
        projections = [ours[f"{block}.attention.{name}.weight"].T for name in ("query", "key", "value")]
        state[f"{theirs_block}.attn.c_attn.weight"] = torch.cat(projections, dim=1)
        state[f"{theirs_block}.attn.c_proj.weight"] = ours[f"{block}.attention.output.weight"].T
        for our_name, their_name in (("up", "c_fc"), ("down", "c_proj")):
            state[f"{theirs_block}.mlp.{their_name}.weight"] = ours[f"{block}.feed_forward.{our_name}.weight"].T
            state[f"{theirs_block}.mlp.{their_name}.bias"] = ours[f"{block}.feed_forward.{our_name}.bias"]
    theirs.load_state_dict(state)
    return theirs


@pytest.mark.parametrize("arm", ["trained", "frozen_head_orthogonal", "frozen_half"])
def test_logits_equal_those_of_hugging_face_gpt2(arm: str) -> None:
    gpt = build(Model(**SIZES, attention=GPT_ARMS[arm]), Seeds()).double().eval()
    with torch.no_grad():
        for parameter in gpt.parameters():  # biases and norms too are to be told apart
            parameter.add_(torch.randn_like(parameter) * 0.02)
        ours, theirs = gpt.logits(gpt(_tokens())), _as_gpt2(gpt)(_tokens()).logits
    assert (ours - theirs).abs().max() <= 1e-12 * theirs.abs().max()


def test_loss_is_the_shifted_cross_entropy_and_leaves_out_ignored_labels() -> None:
    model = OrthogonalELMTransformer(_config()).double()
    labels = _tokens()
    labels[:, 7:] = -100
    found, theirs = model(_tokens(), labels=labels), _as_gpt2(model.gpt)(_tokens(), labels=labels)
    assert found.loss.item() == pytest.approx(theirs.loss.item(), rel=1e-6)  # theirs rounds to float32 inside
    as_tuple = model(_tokens(), labels=labels, return_dict=False)
    assert as_tuple[0] == found.loss
    assert torch.equal(as_tuple[1], found.logits)


# ---- Config ----------------------------------------------------------------------------------------------------------


def test_freeze_qk_selects_the_arm_unless_attention_is_given() -> None:
    assert OELMConfig(**SIZES).as_model().attention == GPT_ARMS["frozen_head_orthogonal"]
    assert OELMConfig(**SIZES, freeze_qk=False).as_model().attention == GPT_ARMS["trained_head_orthogonal"]
    given = OELMConfig(**SIZES, freeze_qk=True, attention=GPT_ARMS["trained"])
    assert given.as_model().attention == GPT_ARMS["trained"]
    assert given.freeze_qk is False


def test_freeze_qk_freezes_queries_and_keys_by_default() -> None:
    assert _frozen(OrthogonalELMTransformer(OELMConfig(**SIZES))) == QUERY_AND_KEY
    assert _frozen(OrthogonalELMTransformer(OELMConfig(**SIZES, freeze_qk=False))) == set()


def test_a_wrong_config_is_refused_with_its_key() -> None:
    with pytest.raises(UserError, match="not divisible by num_heads 5"):
        OELMConfig(**SIZES | {"num_heads": 5})
    with pytest.raises(UserError, match=r"attention.query.start"):
        OELMConfig(**SIZES, attention={"query": {"start": "orthogonel"}})


def test_set_seed_decides_the_starting_values() -> None:
    def built(seed: int) -> OrthogonalELMTransformer:
        torch.manual_seed(seed)
        return OrthogonalELMTransformer(_config())

    _assert_equal_states(built(1), built(1))
    assert not torch.equal(built(1).gpt.token_embedding.weight, built(2).gpt.token_embedding.weight)


# ---- Files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["trained", "frozen_head_orthogonal", "frozen_half", "late_unfreeze"])
def test_round_trip_is_bit_equal_and_frozen_again(arm: str, tmp_path: Path) -> None:
    model = OrthogonalELMTransformer(_config(arm))
    model.save_pretrained(tmp_path)
    for loaded in (
        OrthogonalELMTransformer.from_pretrained(tmp_path),
        AutoModelForCausalLM.from_pretrained(tmp_path),
    ):
        assert isinstance(loaded, OrthogonalELMTransformer)
        assert not loaded.training
        _assert_equal_states(model, loaded)
        assert _frozen(loaded) == _frozen(model)
        assert loaded.config.as_model() == model.config.as_model()
        assert torch.equal(loaded(_tokens()).logits, model.eval()(_tokens()).logits)


def test_auto_config_knows_the_model_type(tmp_path: Path) -> None:
    _config("frozen_half").save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(config, OELMConfig)
    assert config.as_model().attention == GPT_ARMS["frozen_half"]
    assert config.vocab_size == SIZES["vocabulary"]


@pytest.mark.parametrize("arm", ["frozen_head_orthogonal", "frozen_half"])
def test_the_best_folder_of_a_run_loads(arm: str, tmp_path: Path) -> None:
    run = Run(arm=arm, model=Model(**SIZES, attention=GPT_ARMS[arm]))
    gpt = build(run.model, run.seeds)
    save_best(RunDirectory(tmp_path), gpt, run, _no_data(tmp_path), step=1, val_loss=2.0)
    loaded = OrthogonalELMTransformer.from_pretrained(tmp_path / "best")
    _assert_equal_states(gpt, loaded.gpt)
    assert sum(p.numel() for p in loaded.parameters() if not p.requires_grad) == (
        4096 if arm != "frozen_half" else 2048
    )


def _no_data(folder: Path) -> TokenData:
    return TokenData(folder, None, numpy.dtype("<u2"), {}, {}, "", None, None)


def test_a_saved_folder_is_a_stored_model_of_ours(tmp_path: Path) -> None:
    model = OrthogonalELMTransformer(_config("frozen_half"))
    model.save_pretrained(tmp_path)
    _assert_equal_states(load_stored(tmp_path).gpt, model.gpt)


def test_load_state_dict_takes_the_keys_of_a_saved_folder(tmp_path: Path) -> None:
    model, other = OrthogonalELMTransformer(_config("frozen_half")), OrthogonalELMTransformer(_config("frozen_half"))
    other.load_state_dict(model.gpt.state_dict())
    _assert_equal_states(model, other)
    other.load_state_dict(model.state_dict())


def test_a_file_without_some_weights_is_refused(tmp_path: Path) -> None:
    model = OrthogonalELMTransformer(_config())
    state = model.state_dict()
    del state["gpt.final_norm.weight"]
    model.save_pretrained(tmp_path, state_dict=state)
    with pytest.raises(UserError, match=r"lacks weights of this config: gpt.final_norm.weight"):
        OrthogonalELMTransformer.from_pretrained(tmp_path)


def test_pickled_weights_are_never_read(tmp_path: Path) -> None:
    model = OrthogonalELMTransformer(_config())
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(OSError, match="safetensors"):
        OrthogonalELMTransformer.from_pretrained(tmp_path)


# ---- Use -------------------------------------------------------------------------------------------------------------


def test_a_loaded_model_trains_without_moving_what_is_frozen(tmp_path: Path) -> None:
    OrthogonalELMTransformer(_config()).save_pretrained(tmp_path)
    model = OrthogonalELMTransformer.from_pretrained(tmp_path).train()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2, weight_decay=0.1)
    for _ in range(2):
        model(_tokens(), labels=_tokens()).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    resting = {name for name, parameter in model.named_parameters() if torch.equal(before[name], parameter)}
    assert resting == QUERY_AND_KEY


def test_inputs_the_model_cannot_read_are_refused() -> None:
    model = OrthogonalELMTransformer(_config())
    with pytest.raises(UserError, match="seq_len is 16"):
        model(torch.zeros(1, 17, dtype=torch.long))
    with pytest.raises(UserError, match="padding must be on the right"):
        model(_tokens(), attention_mask=torch.tensor([[0] + [1] * 10, [1] * 11]))
    model(_tokens(), attention_mask=torch.tensor([[1] * 10 + [0], [1] * 11]))


def test_without_transformers_the_extra_is_named() -> None:
    code = "import sys; sys.modules['transformers'] = None\nimport oelm\noelm.OrthogonalELMTransformer"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0
    assert "pip install 'oelm[hf]'" in done.stderr
