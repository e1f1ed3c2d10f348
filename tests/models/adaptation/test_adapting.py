"""Laws of an arm applied to a given model: only queries and keys start anew, and what rests does not move."""

import copy
import re

import pytest
import torch

from oelm.core.arms import ARMS, arm
from oelm.core.model.parameters import frozen_names, layer_of, rules, stored_name
from oelm.core.model.projection import SplitLinear
from oelm.core.moves import After, Always, Every, Never
from oelm.core.parts import AS_GIVEN, Part, Parts, for_given_weights
from oelm.core.starts import STARTS
from oelm.machine.errors import UserError
from oelm.models.adaptation import adapt
from oelm.models.adaptation.families import FAMILIES
from parts_of_transformers import by_role
from tiny_transformers import KINDS, LENGTH, VOCABULARY, batch, fine_tuned, tiny


def both(**settings) -> Parts:
    return for_given_weights(Parts(query=Part(**settings), key=Part(**settings)))


def given(**parts: Part) -> Parts:
    return AS_GIVEN.model_copy(update=parts)


def arm_for(name: str) -> Parts:
    return arm(name, kind="encoder").parts


def projections(model, role: str) -> list[torch.Tensor]:
    """The weights of one role, layer by layer, in float64."""
    weights = ((name, value) for name, value in model.state_dict().items() if name.endswith("weight"))
    found = (by_role(model, name, value).get(role) for name, value in weights)
    return [each.double() for each in found if each is not None]


def heads_of(model, role: str) -> list[torch.Tensor]:
    config = model.config
    heads = config.num_attention_heads
    if role == "key":
        heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_kv_heads", None) or heads
    return [head for weight in projections(model, role) for head in weight.chunk(heads)]


# A row of the table each, and every way in which queries and keys are fused; the first of a row of several.
LAYOUTS = ("bert", "distilbert", "vit", "gpt2", "llama", "qwen3", "phi3", "gpt_neox", "falcon_grouped", "modernbert")
EVEN = ("query", "value", "up", "norm", "token_embedding")
ODD = ("key", "output", "down", "position_embedding")


def frozen(kind: str, roles: tuple[str, ...]) -> Parts:
    """These roles frozen as they are given, as far as the model has them."""
    model = tiny(kind)
    has = {role for name, value in model.state_dict().items() for role in by_role(model, name, value)}
    return AS_GIVEN.model_copy(update={role: Part(start="keep", moves=Never()) for role in roles if role in has})


# ---- Every part of every family ------------------------------------------------------------------------------------

UNUSED = re.compile(r"mask_token$")  # no gradient reaches it


def test_every_row_of_the_table_has_a_tiny_model():
    assert {tiny(kind).config.model_type for kind in KINDS} == {kind for row in FAMILIES for kind in row.model_types}


@pytest.mark.parametrize("roles", [EVEN, ODD], ids=["even", "odd"])
@pytest.mark.parametrize("kind", KINDS)
def test_frozen_parts_keep_their_bits_in_real_steps_with_decay_and_everything_else_moves(kind, roles):
    model = tiny(kind)
    expected = model(**batch(model)).logits
    before = copy.deepcopy(model.state_dict())
    done = adapt(model, frozen(kind, roles), seed=0)
    assert torch.equal(model(**batch(model)).logits, expected)
    fine_tuned(model, 2)
    after = model.state_dict()
    assert after.keys() == before.keys()
    resting = 0
    for name in before:
        old, new = (by_role(model, name, state[name]) or {"none": state[name]} for state in (before, after))
        for role in old:
            rests = role in roles or ("token_embedding" in roles and is_tied(model, name))
            if rests:
                assert torch.equal(old[role], new[role]), (name, role)
                resting += old[role].numel() if role in roles else 0
            elif not UNUSED.search(name):
                assert not torch.equal(old[role], new[role]), (name, role)
                if len(old) > 1:  # of a fused module every row
                    assert not (old[role] == new[role]).reshape(len(old[role]), -1).all(dim=1).any(), (name, role)
    assert done.frozen == resting == sum(p.numel() for p in model.parameters() if not p.requires_grad)


def is_tied(model, name: str) -> bool:
    """Whether an output layer of this name is the token embedding."""
    output = model.get_output_embeddings()
    return output is not None and output.weight is model.get_input_embeddings().weight and name == "lm_head.weight"


def test_of_the_layers_that_are_named_a_part_rests_and_what_is_in_no_layer_does_not():
    model = tiny("llama")
    adapt(model, AS_GIVEN.model_copy(update={"norm": Part(start="keep", moves=Never(), layers=[1])}), seed=0)
    assert sorted(frozen_names(model)) == [
        f"model.layers.1.{name}.weight" for name in ("input_layernorm", "post_attention_layernorm")
    ]


def test_a_share_of_grouped_values_rests_head_by_head():
    model = tiny("falcon_grouped")
    adapt(model, AS_GIVEN.model_copy(update={"value": Part(start="keep", moves=Never(), share=0.5)}), seed=0)
    before = projections(model, "value")
    fine_tuned(model, 2)
    for old, new in zip(before, projections(model, "value"), strict=True):
        assert torch.equal(old[:8], new[:8])
        assert not (old[8:] == new[8:]).all(dim=1).any()


def test_of_given_weights_only_queries_and_keys_that_an_arm_mentions_are_started_anew():
    model = tiny("llama")
    before = copy.deepcopy(model.state_dict())
    adapt(model, arm_for("frozen_query"), seed=0)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(before[name], value)}
    assert changed == {name for name in before if "q_proj" in name}
    model = tiny("llama")
    adapt(model, arm_for("reservoir"), seed=0)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(before[name], value)}
    assert changed == {f"model.layers.1.self_attn.{name}_proj.weight" for name in "qk"}


def test_a_tied_output_layer_is_frozen_with_the_embedding_and_said_so():
    said = str(adapt(tiny("gpt2"), arm_for("frozen_embedding"), seed=0))
    assert "transformer.wte.weight and lm_head.weight are one tied matrix: both are frozen" in said.splitlines()
    assert "tied" not in str(adapt(tiny("llama"), arm_for("frozen_embedding"), seed=0))
    other_name_first = tiny("xlm_roberta", "XLMRobertaForMaskedLM")
    done = adapt(other_name_first, arm_for("frozen_embedding"), seed=0)
    (frozen_name,) = frozen_names(other_name_first)
    assert other_name_first.get_parameter(frozen_name) is other_name_first.get_input_embeddings().weight
    assert done.frozen == 50 * 32


# ---- Only queries and keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LAYOUTS)
def test_applying_an_arm_changes_only_queries_and_keys(kind):
    model = tiny(kind)
    before = copy.deepcopy(model.state_dict())
    adapt(model, arm_for("frozen_head_orthogonal"), seed=0)
    after = model.state_dict()
    assert after.keys() == before.keys()
    layers = set()
    for name in before:
        old, new = by_role(model, name, before[name]), by_role(model, name, after[name])
        assert old or torch.equal(before[name], after[name]), name
        for role in old:
            assert torch.equal(old[role], new[role]) == (role not in ("query", "key")), (name, role)
            layers |= {layer_of(name)} if role in ("query", "key") else set()
    assert layers == {0, 1}


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("name", ["frozen_pretrained", "frozen_half"])
def test_outputs_are_bit_equal_before_and_after_splitting(kind, name):
    model = tiny(kind)
    spec = arm_for(name)
    kept = Parts(**{role: part.model_copy(update={"start": "keep"}) for role, part in spec.items()})
    before, again = model(**batch(model)), model(**batch(model))
    adapt(model, kept, seed=0)
    after = model(**batch(model))
    assert torch.equal(before.logits, again.logits)
    assert torch.equal(before.logits, after.logits)
    assert torch.equal(before.loss, after.loss)
    assert any(isinstance(module, SplitLinear) for module in model.modules()) == (
        kind in ("gpt2", "phi3", "gpt_neox", "falcon_grouped", "modernbert") or name == "frozen_half"
    )


def test_draws_depend_on_the_seed_and_the_name_alone():
    def queries(seed: int, threads: int) -> list[torch.Tensor]:
        model, before = tiny("gpt2", seed=seed + 10), torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            adapt(model, arm_for("frozen_head_orthogonal"), seed=seed)
        finally:
            torch.set_num_threads(before)
        return projections(model, "query")

    first, again, other = queries(1, 1), queries(1, 2), queries(2, 1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert not torch.equal(*first)
    base, wrapped = tiny("bert", "BertModel"), tiny("bert", "BertForMaskedLM")
    for model in (base, wrapped):  # whatever class is around one base model
        adapt(model, arm_for("frozen_normal"), seed=3)
    assert all(map(torch.equal, projections(base, "query"), projections(wrapped, "query")))


# ---- Starts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("start", ["head_orthogonal", "orthogonalised"])
def test_every_head_is_orthonormal_and_grouped_keys_per_key_head(kind, start):
    model = tiny(kind)
    adapt(model, both(start=start, gain=2.0), seed=0)
    for role in ("query", "key"):
        for head in heads_of(model, role):
            torch.testing.assert_close(head @ head.T, 4 * torch.eye(len(head), dtype=torch.float64), atol=1e-5, rtol=0)
    if kind == "llama":
        assert len(heads_of(model, "query")) == 2 * len(heads_of(model, "key"))


@pytest.mark.parametrize("kind", LAYOUTS)
def test_orthogonalising_keeps_the_row_space_of_every_head(kind):
    model = tiny(kind).double()
    before = {role: heads_of(model, role) for role in ("query", "key")}
    adapt(model, both(start="orthogonalised"), seed=0)
    for role in ("query", "key"):
        for old, new in zip(before[role], heads_of(model, role), strict=True):
            torch.testing.assert_close(new.T @ new, torch.linalg.pinv(old) @ old, atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    ("start", "deviation"), [("normal", 0.02), ("scaled_normal", 32**-0.5), ("xavier", (2 / 64) ** 0.5)]
)
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_scale_of_random_starts(kind, start, deviation):
    model = tiny(kind)
    adapt(model, both(start=start), seed=0)
    drawn = torch.cat(projections(model, "query") + projections(model, "key"))
    assert drawn.std().item() == pytest.approx(deviation, rel=0.05)


@pytest.mark.parametrize("kind", ["bert", "gpt2", "qwen2"])
def test_biases_are_zero_for_fresh_starts_and_kept_for_given_ones(kind):
    for start, kept in (("head_orthogonal", False), ("keep", True), ("orthogonalised", True)):
        model = tiny(kind)
        names = [
            n
            for n, value in model.state_dict().items()
            if n.endswith("bias") and {"query", "key"} & by_role(model, n, value).keys()
        ]
        before = copy.deepcopy(model.state_dict())
        adapt(model, both(start=start, moves=Never()), seed=0)
        for name in names:
            old, new = (by_role(model, name, state[name]) for state in (before, model.state_dict()))
            for role in new:
                unchanged = torch.equal(old[role], new[role])
                assert unchanged == (kept or role == "value")
                assert unchanged or not new[role].any()


def test_keep_changes_no_bit_and_gain_multiplies():
    model = tiny("bert")
    before = projections(model, "query")
    adapt(model, both(start="keep", gain=2.0), seed=0)
    assert all(torch.equal(2 * old, new) for old, new in zip(before, projections(model, "query"), strict=True))


def test_half_precision_models_keep_their_type():
    model = tiny("llama").bfloat16()
    adapt(model, arm_for("frozen_half"), seed=0)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


# ---- What rests ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LAYOUTS)
def test_half_of_the_heads_rests(kind):
    model = tiny(kind)
    adapt(model, arm_for("frozen_half"), seed=0)
    before = {role: projections(model, role) for role in ("query", "key")}
    fine_tuned(model, 3)
    for role in ("query", "key"):
        for old, new in zip(before[role], projections(model, role), strict=True):
            half = len(old) // 2
            assert torch.equal(old[:half], new[:half])
            assert not (old[half:] == new[half:]).all(dim=1).any()


def test_fused_projections_freeze_query_and_key_and_train_the_value_exactly():
    """Against the same model unsplit, the gradients of two thirds masked, and their decay undone after each step."""

    def gpt2():
        return tiny("gpt2", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0).double()

    split, stock, start = gpt2(), gpt2(), gpt2().state_dict()
    adapt(split, arm_for("frozen_pretrained"), seed=0)
    fused = {f"transformer.h.{layer}.attn.c_attn": block.attn.c_attn for layer, block in enumerate(stock.transformer.h)}
    resting = slice(0, 2 * stock.config.n_embd)
    trained = slice(2 * stock.config.n_embd, None)
    for module in fused.values():
        for parameter in (module.weight, module.bias):
            parameter.register_hook(lambda gradient: gradient.index_fill(-1, torch.arange(resting.stop), 0.0))

    @torch.no_grad()
    def undo_decay(step: int) -> None:
        for path, module in fused.items():
            for name, parameter in module.named_parameters():
                parameter[..., resting] = start[f"{path}.{name}"][..., resting]

    fine_tuned(split, 20)
    fine_tuned(stock, 20, after_each=undo_decay)
    found = split.state_dict()
    for name, value in stock.state_dict().items():
        torch.testing.assert_close(found[name], value, atol=1e-12, rtol=0)
    for path in fused:
        for name in (f"{path}.weight", f"{path}.bias"):
            assert torch.equal(found[name][..., resting], start[name][..., resting])
            assert not (found[name][..., trained] == start[name][..., trained]).any()


def test_queries_and_keys_may_follow_different_rules():
    model = tiny("gpt2")
    spec = for_given_weights(
        Parts(query=Part(start="keep", moves=Every(steps=3)), key=Part(start="keep", moves=Never(), share=0.5))
    )
    adapt(model, spec, seed=0)
    module = model.transformer.h[1].attn.c_attn
    assert list(module.oelm_moves.values()) == 2 * [Every(steps=3), Never(), Always()]
    assert [parameter.shape for parameter in module.parameters()][:3] == [(32, 32), (32, 16), (32, 48)]


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_rules_name_layer_and_moves_of_every_parameter(kind):
    model = tiny(kind)
    moves = After(fraction=0.5, order="layer_by_layer")
    adapt(model, both(start="keep", moves=moves), seed=0)
    scheduled = {name: rule for name, rule in rules(model).items() if rule.moves == moves}
    state = tiny(kind).state_dict()
    assert {stored_name(name) for name in scheduled} == {
        name for name, value in state.items() if {"query", "key"} & by_role(model, name, value).keys()
    }
    assert {rule.layer for rule in scheduled.values()} == {0, 1}
    assert all(parameter.requires_grad for parameter in model.parameters())


# ---- State dicts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_a_split_model_loads_what_a_stock_model_stores_and_the_reverse(kind):
    stock, split = tiny(kind, seed=5), tiny(kind)
    adapt(split, arm_for("frozen_half"), seed=0)
    split.load_state_dict(stock.state_dict())
    torch.testing.assert_close(split(**batch(split)).logits, stock(**batch(stock)).logits, atol=0, rtol=0)
    other = tiny(kind, seed=6)
    other.load_state_dict(copy.deepcopy(split).state_dict())
    torch.testing.assert_close(other(**batch(other)).logits, stock(**batch(stock)).logits, atol=0, rtol=0)


# ---- What it says, and what it refuses -----------------------------------------------------------------------------


def test_the_answer_says_what_was_done():
    done = adapt(tiny("gpt2"), arm_for("frozen_half"), seed=0)
    assert done.family == "GPT-2"
    assert len(done.parts) == 4
    lines = str(done).splitlines()
    assert lines[0] == f"GPT-2: {done.trainable:,} parameters trainable, {done.frozen:,} frozen"
    assert lines[1] == "the given queries and keys were replaced by newly drawn ones"
    assert lines[2] == "  transformer.h.0.attn.c_attn (query): head_orthogonal; 16 of 32 rows move never"
    frozen = Part(start="keep", moves=Never())
    embeddings = given(token_embedding=frozen, position_embedding=frozen)
    rows = {part.role: (part.covered_rows, part.rows) for part in adapt(tiny("gpt2"), embeddings, seed=0).parts}
    assert (rows["token_embedding"], rows["position_embedding"]) == ((VOCABULARY, VOCABULARY), (LENGTH + 4, LENGTH + 4))
    kept = str(adapt(tiny("gpt2"), arm_for("frozen_pretrained"), seed=0))
    assert "replaced" not in kept
    assert "FreezeCallback" in str(adapt(tiny("gpt2"), arm_for("late_unfreeze"), seed=0))


def needs_our_gpt(name: str) -> bool:
    matrix_free = any(STARTS[part.start].matrix_free for _, part in ARMS[name].parts.items())
    return matrix_free or not ARMS[name].governs_parts_alone


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (Parts(), "parts.value.start: must be keep: of given weights only queries and keys"),
        (given(up=Part(start="keep", gain=2.0)), "parts.up.gain: must be 1"),
        (given(up=Part(start="keep", share=0.5)), "parts.up.share: its rows belong to no head; name layers instead"),
        (given(value=Part(start="keep", share=0.25)), "parts.value.share: 0.25 of 2 value heads is not a whole number"),
        (given(token_embedding=Part(start="keep", layers=[0])), "parts.token_embedding.layers: it is in no layer"),
        (given(position_embedding=Part(start="keep", moves=Never())), "parts.position_embedding: Llama .* has no"),
        (both(start="residual_normal"), "parts.query.start: cannot be residual_normal"),
        (both(share=0.3), "parts.query.share: 0.3 of 4 heads is not a whole number"),
        (both(share=0.25), "parts.key.share: 0.25 of 2 key heads is not a whole number"),
        (both(layers=[0, 2]), "parts.query.layers: layer 2 is not one of 0 to 1"),
        (both(layers="odd", share=0.5), "parts.query.layers: leave out either layers or share"),
    ],
)
def test_specs_that_cannot_be_applied_are_refused_before_anything_changes(spec, words):
    model = tiny("llama")
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(UserError, match=words):
        adapt(model, spec, seed=0)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_dependent_rows_cannot_be_orthogonalised_and_nothing_is_changed():
    model = tiny("bert")
    with torch.no_grad():
        model.bert.encoder.layer[1].attention.self.key.weight[9] = 0
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(UserError, match=r"layer\.1\.attention\.self\.key: rows of key head 1 depend on one another"):
        adapt(model, arm_for("frozen_orthogonalised"), seed=0)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("name", ARMS)
def test_an_arm_is_applied_or_only_our_gpt_can_have_it(name):
    if needs_our_gpt(name):
        with pytest.raises(UserError, match=r"keeps its matrices|changes how scores are formed or repairs parts"):
            adapt(tiny("bert"), arm_for(name), seed=0)
        return
    done = adapt(tiny("bert"), arm_for(name.replace("quarter", "half")), seed=0)
    assert (done.frozen > 0) == (name.startswith("frozen") or name == "reservoir")


def test_models_that_cannot_have_an_arm_are_refused():
    import transformers

    adapted = tiny("bert")
    adapt(adapted, arm_for("fine_tuned"), seed=0)
    unknown = transformers.T5Model(
        transformers.T5Config(vocab_size=20, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    )
    crossing = tiny("bert", "BertLMHeadModel", is_decoder=True, add_cross_attention=True)
    for model, said in (
        (adapted, "already applied to it"),
        (unknown, r"T5Model.*encoder\.block\.N\.layer\.N\.SelfAttention \(T5Attention: q, k, v"),
        (torch.nn.Linear(2, 2), "Linear is not a model of the transformers library"),
        (crossing, "cross-attention"),
    ):
        with pytest.raises(UserError, match=said):
            adapt(model, arm_for("fine_tuned"), seed=0)
