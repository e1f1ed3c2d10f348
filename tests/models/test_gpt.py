"""The Hugging Face face of our GPT: same numbers as theirs, same files as ours, frozen after every load."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

pytest.importorskip("transformers", reason="Hugging Face transformers is not installed: pip install 'oelm[hf]'")

from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    StaticCache,
)

from oelm.core.arms import GPT_ARMS
from oelm.core.config import Model, Seeds
from oelm.core.model.initialization import build
from oelm.core.model.transformer import GPT
from oelm.machine.errors import UserError
from oelm.models.applying import load
from oelm.models.gpt import OELMConfig, OELMForSequenceClassification, OELMModel, OrthogonalELMTransformer
from oelm.models.gpt2 import gpt2_config, gpt2_weights
from oelm.run.stored_models.loading import load_stored

SIZES = {"vocabulary": 101, "seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 64}
QUERY_AND_KEY = {f"gpt.blocks.{layer}.attention.{name}.weight" for layer in (0, 1) for name in ("query", "key")}


def _config(arm: str = "frozen_head_orthogonal", **more: object) -> OELMConfig:
    return OELMConfig(**SIZES, parts=GPT_ARMS[arm].parts, **more)


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
    """Hugging Face's GPT-2 with our weights."""
    theirs = GPT2LMHeadModel(GPT2Config(**gpt2_config(gpt.config))).double().eval()
    weights = gpt2_weights(gpt.state_dict(), gpt.config)
    theirs.load_state_dict({"lm_head.weight": weights["transformer.wte.weight"]} | weights)
    return theirs


def _both(arm: str = "frozen_half") -> tuple[OrthogonalELMTransformer, GPT2LMHeadModel]:
    """Ours and theirs with the same weights, biases and norms told apart too, in double precision."""
    model = OrthogonalELMTransformer(_config(arm)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model, _as_gpt2(model.gpt)


@pytest.mark.parametrize(("arm", "tied"), [("trained", False), ("frozen_half", True)])
def test_logits_equal_those_of_hugging_face_gpt2(arm: str, tied: bool) -> None:
    gpt = build(Model(**SIZES, parts=GPT_ARMS[arm].parts, tied=tied), Seeds()).double().eval()
    with torch.no_grad():
        for parameter in gpt.parameters():  # biases and norms too are to be told apart
            parameter.add_(torch.randn_like(parameter) * 0.02)
        ours, theirs = gpt.logits(gpt(_tokens())), _as_gpt2(gpt)(_tokens()).logits
    assert (ours - theirs).abs().max() <= 1e-12 * theirs.abs().max()


@pytest.mark.parametrize("more", [{}, {"num_items_in_batch": 5}])
def test_loss_is_the_shifted_cross_entropy_and_leaves_out_ignored_labels(more: dict[str, int]) -> None:
    model, theirs = _both()
    labels = _tokens()
    labels[:, 7:] = -100
    found = model(_tokens(), labels=labels, **more)
    assert found.loss.item() == pytest.approx(theirs(_tokens(), labels=labels, **more).loss.item(), rel=1e-6)
    as_tuple = model(_tokens(), labels=labels, **more, return_dict=False)
    assert as_tuple[0] == found.loss
    assert torch.equal(as_tuple[1], found.logits)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_hidden_states_and_attention_weights_equal_those_of_hugging_face_gpt2(implementation: str) -> None:
    model, theirs = _both()
    model.set_attn_implementation(implementation)
    theirs.set_attn_implementation("eager")
    mask = torch.ones(2, 11, dtype=torch.long)
    mask[0, 8:] = 0
    asked = {"attention_mask": mask, "output_attentions": True, "output_hidden_states": True}
    ours, expected = (each(_tokens(), **asked) for each in (model, theirs))
    for mine, their in zip(ours.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(mine[mask == 1], their[mask == 1], rtol=1e-11, atol=1e-11)
    for mine, their in zip(ours.attentions, expected.attentions, strict=True):
        torch.testing.assert_close(mine[1], their[1], rtol=1e-11, atol=1e-11)
        torch.testing.assert_close(mine[0, :, :8], their[0, :, :8], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(ours.logits, model(_tokens(), attention_mask=mask).logits, rtol=1e-11, atol=1e-11)
    assert model(_tokens()).attentions is None


@pytest.mark.parametrize(
    "how",
    [
        {"do_sample": False, "cache_implementation": "static"},
        {"do_sample": False, "num_beams": 4, "num_return_sequences": 2, "length_penalty": 0.5},
        {"do_sample": True, "top_k": 7, "temperature": 1.3},
    ],
    ids=str,
)
def test_generation_equals_that_of_hugging_face_gpt2(how: dict[str, object]) -> None:
    texts = []
    for model in _both():
        torch.manual_seed(11)
        model.generation_config.pad_token_id = 0
        texts.append(model.generate(_tokens()[:, :5], max_new_tokens=11, **how))
    assert texts[0].shape[1] == SIZES["seq_len"]
    assert torch.equal(*texts)


# ---- Config ----------------------------------------------------------------------------------------------------------


def test_freeze_qk_selects_the_arm_unless_attention_is_given() -> None:
    assert OELMConfig(**SIZES).as_model().parts == GPT_ARMS["frozen_head_orthogonal"].parts
    assert OELMConfig(**SIZES, freeze_qk=False).as_model().parts == GPT_ARMS["trained_head_orthogonal"].parts
    given = OELMConfig(**SIZES, freeze_qk=True, parts=GPT_ARMS["trained"].parts)
    assert given.as_model().parts == GPT_ARMS["trained"].parts
    assert given.freeze_qk is False
    assert _frozen(OrthogonalELMTransformer(OELMConfig(**SIZES))) == QUERY_AND_KEY


def test_a_wrong_config_is_refused_with_its_key() -> None:
    with pytest.raises(UserError, match="not divisible by num_heads 5"):
        OELMConfig(**SIZES | {"num_heads": 5})
    with pytest.raises(UserError, match=r"parts.query.start"):
        OELMConfig(**SIZES, parts={"query": {"start": "orthogonel"}})


def test_set_seed_decides_the_starting_values() -> None:
    def built(seed: int) -> OrthogonalELMTransformer:
        torch.manual_seed(seed)
        return OrthogonalELMTransformer(_config())

    _assert_equal_states(built(1), built(1))
    assert not torch.equal(built(1).gpt.token_embedding.weight, built(2).gpt.token_embedding.weight)


# ---- Files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arm", ["trained", "frozen_head_orthogonal", "frozen_half", "late_unfreeze", "frozen_hadamard", "identity_query"]
)
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
        assert loaded.config.vocab_size == SIZES["vocabulary"]
        assert torch.equal(loaded(_tokens()).logits, model.eval()(_tokens()).logits)


def test_a_saved_folder_is_a_stored_model_of_ours_and_its_keys_are_taken(tmp_path: Path) -> None:
    model = OrthogonalELMTransformer(_config("frozen_half"))
    model.save_pretrained(tmp_path)
    stored, other = load_stored(tmp_path).gpt, OrthogonalELMTransformer(_config("frozen_half"))
    _assert_equal_states(stored, model.gpt)
    other.load_state_dict(stored.state_dict())
    _assert_equal_states(model, other)


def test_a_file_without_some_weights_is_refused(tmp_path: Path) -> None:
    model = OrthogonalELMTransformer(_config())
    state = model.state_dict()
    del state["gpt.final_norm.weight"]
    model.save_pretrained(tmp_path, state_dict=state)
    with pytest.raises(UserError, match=r"weights of this config are missing: gpt.final_norm.weight"):
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
    model = OrthogonalELMTransformer(_config()).eval()
    with pytest.raises(UserError, match="17 tokens, but the model's seq_len is 16"):
        model(torch.zeros(1, 17, dtype=torch.long))
    with pytest.raises(UserError, match="seq_len is 16"):
        model.generate(_tokens(), max_new_tokens=7, do_sample=False)
    with pytest.raises(UserError, match="either input_ids or inputs_embeds"):
        model()
    past = model(_tokens()).past_key_values
    with pytest.raises(UserError, match="attention_mask: 1 positions, but 12 with the 11 of the cache"):
        model(_tokens()[:, :1], attention_mask=torch.zeros(2, 1), past_key_values=past)


@pytest.mark.parametrize("pieces", [[11], [1] * 11, [5, 1, 5]])
def test_logits_with_a_cache_equal_those_without(pieces: list[int]) -> None:
    model, _ = _both()
    with torch.no_grad():
        whole, past, parts = model(_tokens(), use_cache=False), None, []
        for piece in _tokens().split(pieces, dim=1):
            output = model(piece, past_key_values=past, use_cache=True)
            past = output.past_key_values
            parts.append(output.logits)
    assert whole.past_key_values is None
    torch.testing.assert_close(torch.cat(parts, dim=1), whole.logits, rtol=1e-12, atol=1e-12)


def test_a_cache_is_kept_only_where_it_is_of_use() -> None:
    model = OrthogonalELMTransformer(_config())
    assert model.train()(_tokens()).past_key_values is None
    assert model.eval()(_tokens()).past_key_values.get_seq_length() == 11
    assert model(_tokens(), use_cache=False).past_key_values is None


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("training", [False, True])
def test_logits_do_not_depend_on_padding(side: str, training: bool) -> None:
    model, _ = _both()
    model.train(training)
    lengths, time = (11, 6, 1), 13
    tokens, mask = torch.zeros(2, 3, time, dtype=torch.long)
    rows = torch.randint(SIZES["vocabulary"], (3, 11))
    places = [slice(time - n, time) if side == "left" else slice(n) for n in lengths]
    for row, (n, place) in enumerate(zip(lengths, places, strict=True)):
        tokens[row, place], mask[row, place] = rows[row, :n], 1
    for filling in (0, 57):  # whatever stands in the padding
        padded = model(tokens.where(mask == 1, filling), attention_mask=mask).logits
        assert padded.isfinite().all()
        for row, (n, place) in enumerate(zip(lengths, places, strict=True)):
            alone = model(rows[row : row + 1, :n]).logits[0]
            torch.testing.assert_close(padded[row, place], alone, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_tokens_after_padding_are_read_as_if_it_were_not_there(positions: str) -> None:
    model = OrthogonalELMTransformer(_config("trained", positions=positions)).double().eval()
    mask = torch.ones(2, 11, dtype=torch.long)
    mask[:, 3:6] = 0
    without = model(_tokens()[:, mask[0] == 1]).logits[:, 3:]
    counted = (mask.cumsum(1) - 1).clamp(min=0)
    for given in ({}, {"position_ids": counted}):
        first = {name: value[:, :6] for name, value in given.items()}
        then = {name: value[:, 6:] for name, value in given.items()}
        cache = model(_tokens()[:, :6], attention_mask=mask[:, :6], **first).past_key_values
        continued = model(_tokens()[:, 6:], attention_mask=mask, past_key_values=cache, **then).logits
        for found in (continued, model(_tokens(), attention_mask=mask, **given).logits[:, 6:]):
            torch.testing.assert_close(found, without, rtol=1e-11, atol=1e-11)


def test_gradient_checkpointing_changes_no_gradient() -> None:
    model, _ = _both("frozen_half")
    mask = torch.ones(2, 11)
    mask[0, 8:] = 0
    gradients, passes = [], []
    model.gpt.blocks[0].register_forward_pre_hook(lambda *_: passes.append(1))
    for enable in (False, True):
        if enable:
            model.gradient_checkpointing_enable()
        model.train().zero_grad()
        model(_tokens(), attention_mask=mask, labels=_tokens()).loss.backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
        passes.append(0)
    assert passes == [1, 0, 1, 1, 0]  # computed once more, on the way back
    assert gradients[0].keys() == gradients[1].keys() == {n for n, p in model.named_parameters() if p.requires_grad}
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-12, atol=1e-12)


def test_embeddings_and_some_logits_can_be_asked_for() -> None:
    model, _ = _both()
    whole = model(_tokens()).logits
    embedded = model(inputs_embeds=model.get_input_embeddings()(_tokens())).logits
    assert torch.equal(embedded, whole)
    torch.testing.assert_close(model(_tokens(), logits_to_keep=2).logits, whole[:, -2:])
    torch.testing.assert_close(model(_tokens(), logits_to_keep=torch.tensor([1, 4])).logits, whole[:, [1, 4]])
    shifted = model(_tokens(), position_ids=torch.arange(3, 14)[None]).logits
    assert not torch.allclose(shifted, whole)


def test_texts_packed_into_one_row_are_read_as_they_are_alone() -> None:
    model, _ = _both()
    one, other = _tokens()
    positions = torch.cat([torch.arange(11), torch.arange(9)])[None]
    packed = model(torch.cat([one, other[:9]])[None], position_ids=positions, use_cache=False).logits[0]
    torch.testing.assert_close(packed[:11], model(one[None]).logits[0], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(packed[11:], model(other[None, :9]).logits[0], rtol=1e-11, atol=1e-11)


# ---- One graph -------------------------------------------------------------------------------------------------------

REPAIRED = GPT_ARMS["frozen_orthogonal_repaired"].model_dump(mode="json")
CONVOLVED = REPAIRED["repairs"] | {"convolution": {"width": 3}}
TREATED = {
    "rotary, repaired": {**REPAIRED, "positions": "rotary"},
    "no positions, convolved": {**REPAIRED, "repairs": CONVOLVED, "positions": "none"},
}


def _treated(name: str) -> OrthogonalELMTransformer:
    """Every weight told apart from its start, in double precision."""
    tree = {key: value for key, value in TREATED[name].items() if key in ("parts", "scores", "repairs", "positions")}
    model = OrthogonalELMTransformer(OELMConfig(**SIZES, **tree)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def _padded() -> dict[str, Tensor]:
    mask = torch.ones(2, 11, dtype=torch.long)
    mask[0, :2] = mask[0, 4:6] = 0
    return {"input_ids": _tokens(), "attention_mask": mask}


def test_the_whole_model_compiles_as_one_graph() -> None:
    model = _treated("rotary, repaired")
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    for more in ({}, {"use_cache": False}, {"labels": _tokens(), "output_attentions": True}):
        torch.testing.assert_close(compiled(**_padded(), **more).logits, model(**_padded()).logits)


def test_torch_export_keeps_the_function_at_other_lengths() -> None:
    model = _both()[0]
    time = torch.export.Dim("time", min=2, max=SIZES["seq_len"])
    exported = torch.export.export(
        model,
        (),
        _padded() | {"use_cache": False},
        dynamic_shapes={"input_ids": {1: time}, "attention_mask": {1: time}, "use_cache": None},
        strict=False,
    )
    shorter = {name: value[:, :6] for name, value in _padded().items()}
    torch.testing.assert_close(exported.module()(**shorter, use_cache=False).logits, model(**shorter).logits)


# ---- What repairs look back to ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TREATED)
@pytest.mark.parametrize(
    "how", [{}, {"cache_implementation": "static"}, {"num_beams": 3}, {"prompt_lookup_num_tokens": 2}], ids=str
)
def test_generation_with_a_cache_equals_that_without(name: str, how: dict[str, object]) -> None:
    model = _treated(name)
    model.generation_config.pad_token_id = 0
    given = {key: value[:, :7] for key, value in _padded().items()}
    if "prompt_lookup_num_tokens" in how:
        given = {"input_ids": given["input_ids"][1:]}
    beams = {"num_beams": how.get("num_beams", 1)}
    made = model.generate(**given, max_new_tokens=8, do_sample=False, **how)
    assert torch.equal(made, model.generate(**given, max_new_tokens=8, do_sample=False, use_cache=False, **beams))


@pytest.mark.parametrize("name", TREATED)
@pytest.mark.parametrize("is_cached", [True, False])
def test_what_follows_padding_does_not_depend_on_what_stands_in_it(name: str, is_cached: bool) -> None:
    model, found = _treated(name), []
    mask = torch.ones(2, 11, dtype=torch.long)
    mask[0, 5:7] = 0
    for filling in (0, 57):
        tokens = _tokens().where(mask == 1, filling)
        if is_cached:
            cache = model(tokens[:, :7], attention_mask=mask[:, :7]).past_key_values
            found.append(model(tokens[:, 7:], attention_mask=mask, past_key_values=cache).logits)
        else:
            found.append(model(tokens, attention_mask=mask).logits[:, 7:])
    assert torch.equal(*found)


@pytest.mark.parametrize("name", TREATED)
def test_a_static_cache_given_to_the_model_is_filled_step_by_step(name: str) -> None:
    model = _treated(name)
    cache = StaticCache(config=model.config, max_cache_len=SIZES["seq_len"])
    pieces = [model(piece, past_key_values=cache).logits for piece in _tokens().split([6, 1, 4], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), model(_tokens()).logits, rtol=1e-11, atol=1e-11)


# ---- Other heads -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["frozen_head_orthogonal", "frozen_half"])
def test_every_auto_class_and_oelm_load_read_a_saved_folder(arm: str, tmp_path: Path) -> None:
    model = OrthogonalELMTransformer(_config(arm)).eval()
    model.save_pretrained(tmp_path)
    loaded = load(tmp_path)
    assert isinstance(loaded, OrthogonalELMTransformer)
    _assert_equal_states(model, loaded)
    body, classifier = AutoModel.from_pretrained(tmp_path), AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert isinstance(body, OELMModel)
    assert isinstance(classifier, OELMForSequenceClassification)
    for each in (loaded, body, classifier):
        assert _frozen(each) == _frozen(model)
    states = model(_tokens(), output_hidden_states=True).hidden_states
    assert torch.equal(body(_tokens()).last_hidden_state, states[-1])
    classifier.save_pretrained(tmp_path / "classifier")
    again = load(tmp_path / "classifier")
    assert isinstance(again, OELMForSequenceClassification)
    assert torch.equal(again(_tokens()).logits, classifier(_tokens()).logits)


def test_a_text_is_classified_by_its_last_token_whatever_pads_it() -> None:
    config = _config()
    config.num_labels = 3
    model = OELMForSequenceClassification(config).double().eval()
    alone = model(_tokens()[:1, 3:]).logits
    assert alone.shape == (1, 3)
    for places in (slice(3, None), slice(None, 8)):
        tokens, mask = torch.full((1, 11), 5), torch.zeros(1, 11, dtype=torch.long)
        tokens[:, places], mask[:, places] = _tokens()[:1, 3:], 1
        torch.testing.assert_close(model(tokens, attention_mask=mask).logits, alone, rtol=1e-11, atol=1e-11)
    model(_tokens(), labels=torch.tensor([0, 2])).loss.backward()
    assert model.score.weight.grad.abs().sum() > 0


def test_weights_that_stay_on_a_disk_are_read_from_there(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="pip install accelerate")
    model = OrthogonalELMTransformer(_config("frozen_half")).eval()
    model.save_pretrained(tmp_path)
    ours = ("token_embedding", "position_embedding", "blocks.1", "final_norm")
    places = {"gpt.blocks.0": "disk", "lm_head": "cpu"} | {f"gpt.{name}": "cpu" for name in ours}
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, device_map=places, offload_folder=tmp_path / "disk")
    assert {name.split(".")[2] for name, value in loaded.named_parameters() if value.is_meta} == {"0"}
    assert torch.equal(loaded(_tokens()).logits, model(_tokens()).logits)


# ---- Weights ---------------------------------------------------------------------------------------------------------


def _is_tied(model: OrthogonalELMTransformer) -> bool:
    return model.lm_head.weight is model.gpt.token_embedding.weight


@pytest.mark.parametrize("arm", ["trained", "frozen_head_orthogonal", "frozen_half"])
def test_the_output_layer_is_the_embedding_before_and_after_loading(arm: str, tmp_path: Path) -> None:
    model = OrthogonalELMTransformer(_config(arm))
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert _is_tied(model)
    assert _is_tied(loaded)
    assert loaded.get_output_embeddings().weight.shape == (SIZES["vocabulary"], SIZES["d_model"])
    assert sum(p.numel() for p in loaded.parameters()) == sum(p.numel() for p in model.gpt.parameters())
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert set(file.keys()) == set(model.gpt.state_dict())


@pytest.mark.parametrize("name", ["tied", "tie_word_embeddings"])
def test_an_output_layer_of_its_own_is_the_gpts_before_and_after_loading(name: str, tmp_path: Path) -> None:
    model = OrthogonalELMTransformer(_config("frozen_embedding", **{name: False})).eval()
    model.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert set(file.keys()) == set(model.gpt.state_dict()) > {"output_layer.weight"}
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.config.tie_word_embeddings is loaded.config.tied is loaded.gpt.config.tied is False
    assert loaded.get_output_embeddings() is loaded.gpt.output_layer
    assert _frozen(loaded) == {"gpt.token_embedding.weight"}
    _assert_equal_states(model, loaded)
    hidden = model(_tokens(), output_hidden_states=True).hidden_states[-1]
    assert torch.equal(loaded(_tokens()).logits, hidden @ model.gpt.output_layer.weight.T)
    assert torch.equal(load_stored(tmp_path).gpt.output_weight, model.gpt.output_layer.weight)
    anew = OrthogonalELMTransformer(loaded.config)
    anew.load_state_dict(model.gpt.state_dict())
    _assert_equal_states(anew, model)


def test_models_without_an_output_layer_leave_it_out(tmp_path: Path) -> None:
    model = OrthogonalELMTransformer(_config(tied=False)).eval()
    model.save_pretrained(tmp_path)
    for auto in (AutoModel, AutoModelForSequenceClassification):
        loaded, information = auto.from_pretrained(tmp_path, output_loading_info=True)
        assert not information["unexpected_keys"]
        assert not [name for name, _ in loaded.named_parameters() if "output_layer" in name]
        assert torch.equal(
            loaded.base_model(_tokens()).last_hidden_state, model.base_model(_tokens()).last_hidden_state
        )
        loaded.save_pretrained(tmp_path / auto.__name__)
        assert not auto.from_pretrained(tmp_path / auto.__name__).config.tied
    with pytest.raises(UserError, match=r"weights of this config are missing: gpt\.output_layer\.weight$"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "AutoModel")


def test_whether_the_output_layer_is_tied_is_decided_when_a_model_is_built(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tie_word_embeddings: True, but tied is False"):
        _config(tied=False, tie_word_embeddings=True)
    for tied, problem in (
        (True, r"weights of this config are missing: gpt\.output_layer\.weight$"),
        (False, r"has an output layer of its own \(.*output_layer\.weight\), but tie_word_embeddings is true"),
    ):
        model = OrthogonalELMTransformer(_config(tied=tied))
        model.save_pretrained(tmp_path / str(tied))
        with pytest.raises(UserError, match=problem):
            AutoModelForCausalLM.from_pretrained(tmp_path / str(tied), tie_word_embeddings=not tied)
        model.config.tie_word_embeddings = not tied
        for use in (lambda model=model: model(_tokens()), lambda model=model: model.save_pretrained(tmp_path / "no")):
            with pytest.raises(UserError, match=f"^tie_word_embeddings: this model was built with {tied}; set it in"):
                use()
        assert OrthogonalELMTransformer(model.config).gpt.config.tied is not tied


@pytest.mark.parametrize(("size", "mean_resizing", "tied"), [(90, True, True), (128, True, False), (128, False, True)])
def test_resized_embeddings_keep_what_they_had_tied_and_frozen(
    size: int, mean_resizing: bool, tied: bool, tmp_path: Path
) -> None:
    model = OrthogonalELMTransformer(_config("frozen_half", tied=tied)).eval()
    before, frozen = model.gpt.token_embedding.weight.detach().clone(), _frozen(model)
    logits = model(_tokens() % 90).logits
    model.resize_token_embeddings(size, mean_resizing=mean_resizing)
    both = min(size, SIZES["vocabulary"])
    assert (model.get_output_embeddings().weight is model.gpt.token_embedding.weight) == tied
    assert _frozen(model) == frozen
    assert torch.equal(model.gpt.token_embedding.weight[:both], before[:both])
    assert model.gpt.token_embedding.weight.abs().max() < 1  # new rows at the scale of the others
    assert model.config.vocab_size == model.gpt.config.vocabulary == size
    resized = model(_tokens() % 90).logits
    assert resized.shape[-1] == size
    torch.testing.assert_close(resized[..., :both], logits[..., :both])
    model.save_pretrained(tmp_path)
    assert torch.equal(AutoModelForCausalLM.from_pretrained(tmp_path)(_tokens() % 90).logits, resized)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_loads_runs_and_generates(dtype: torch.dtype, tmp_path: Path) -> None:
    model = OrthogonalELMTransformer(_config("frozen_half")).eval()
    model.save_pretrained(tmp_path)
    half = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype)
    assert {parameter.dtype for parameter in half.parameters()} == {dtype}
    assert _frozen(half) == _frozen(model)
    mask = torch.ones(2, 11)
    mask[0, :4] = 0
    for given in (None, mask):
        found, expected = (each(_tokens(), attention_mask=given).logits.float() for each in (half, model))
        assert (found - expected)[:, 4:].abs().max() < 0.03 * expected.abs().max()
    assert half.generate(_tokens(), attention_mask=mask, max_new_tokens=3, pad_token_id=0).shape == (2, 14)
    half.save_pretrained(tmp_path / "half")
    _assert_equal_states(half, AutoModelForCausalLM.from_pretrained(tmp_path / "half"))
