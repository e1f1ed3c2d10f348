"""Laws of an arm applied to a given model: only queries and keys change, and what rests does not move."""

import copy

import pytest
import torch

from oelm.arms import ARMS, arm
from oelm.errors import UserError
from oelm.model.adaptation import adapt
from oelm.model.adaptation.adapting import GOVERNED
from oelm.model.adaptation.families import family_of, sites_of
from oelm.model.parameters import frozen_names, layer_of, rules, stored_name
from oelm.model.split import SplitLinear
from oelm.treatment.moves import After, Always, Every, Never
from oelm.treatment.parts import AS_GIVEN, KEPT, Part, Parts, for_given_weights
from oelm.treatment.starts import STARTS
from tiny_transformers import KINDS, batch, fine_tuned, tiny


def both(**settings) -> Parts:
    return for_given_weights(Parts(query=Part(**settings), key=Part(**settings)))


def roles_of(model) -> dict[str, tuple[str, ...]]:
    """Stored names of all parameters of projections, with what they compute in order of their outputs."""
    return {
        f"{site.path}.{leaf}": site.roles for site in sites_of(model, family_of(model)) for leaf in ("weight", "bias")
    }


def by_role(model, name: str, value: torch.Tensor) -> dict[str, torch.Tensor]:
    """Outputs first, one entry for each role."""
    roles = roles_of(model)[name]
    rows = value.T if model.config.model_type == "gpt2" and value.dim() == 2 else value
    return dict(zip(roles, rows.chunk(len(roles)), strict=True))


def projections(model, role: str) -> list[torch.Tensor]:
    """The weights of one role, layer by layer, in float64."""
    state = model.state_dict()
    names = [name for name in roles_of(model) if name.endswith("weight") and role in roles_of(model)[name]]
    return [by_role(model, name, state[name])[role].double() for name in names]


def heads_of(model, role: str) -> list[torch.Tensor]:
    config = model.config
    heads = config.num_attention_heads if role == "query" else getattr(config, "num_key_value_heads", None)
    return [head for weight in projections(model, role) for head in weight.chunk(heads or config.num_attention_heads)]


# ---- Only queries and keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_applying_an_arm_changes_only_queries_and_keys(kind):
    model = tiny(kind)
    before = copy.deepcopy(model.state_dict())
    adapt(model, arm("frozen_head_orthogonal").parts, seed=0)
    after = model.state_dict()
    assert after.keys() == before.keys()
    roles = roles_of(tiny(kind))
    assert {layer_of(name) for name in roles} == {0, 1}
    for name in before:
        if name not in roles:
            assert torch.equal(before[name], after[name]), name
            continue
        old, new = by_role(model, name, before[name]), by_role(model, name, after[name])
        for role in roles[name]:
            assert torch.equal(old[role], new[role]) == (role == "value"), (name, role)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["frozen_pretrained", "frozen_half"])
def test_outputs_are_bit_equal_before_and_after_splitting(kind, name):
    model = tiny(kind)
    spec = arm(name).parts
    kept = Parts(**{role: part.model_copy(update={"start": "keep"}) for role, part in spec.items()})
    before, again = model(**batch(model)), model(**batch(model))
    adapt(model, kept, seed=0)
    after = model(**batch(model))
    assert torch.equal(before.logits, again.logits)
    assert torch.equal(before.logits, after.logits)
    assert torch.equal(before.loss, after.loss)
    assert any(isinstance(module, SplitLinear) for module in model.modules()) == (
        kind == "gpt2" or name == "frozen_half"
    )


def test_every_class_around_one_base_model_draws_the_same():
    base, wrapped = tiny("bert", "BertModel"), tiny("bert", "BertForMaskedLM")
    for model in (base, wrapped):
        adapt(model, arm("frozen_normal").parts, seed=3)
    for one, other in zip(projections(base, "query"), projections(wrapped, "query"), strict=True):
        assert torch.equal(one, other)


def test_draws_depend_on_the_seed_and_the_name_alone():
    def queries(seed: int, threads: int) -> list[torch.Tensor]:
        model, before = tiny("gpt2", seed=seed + 10), torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            adapt(model, arm("frozen_head_orthogonal").parts, seed=seed)
        finally:
            torch.set_num_threads(before)
        return projections(model, "query")

    first, again, other = queries(1, 1), queries(1, 2), queries(2, 1)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert not torch.equal(*first)


# ---- Starts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", ["head_orthogonal", "orthogonalised"])
def test_every_head_is_orthonormal_and_grouped_keys_per_key_head(kind, start):
    model = tiny(kind)
    adapt(model, both(start=start, gain=2.0), seed=0)
    for role in ("query", "key"):
        for head in heads_of(model, role):
            torch.testing.assert_close(head @ head.T, 4 * torch.eye(len(head), dtype=torch.float64), atol=1e-5, rtol=0)


def test_grouped_keys_have_fewer_heads():
    model = tiny("llama")
    assert len(heads_of(model, "query")) == 2 * len(heads_of(model, "key"))


@pytest.mark.parametrize("kind", KINDS)
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
        names = [name for name in roles_of(model) if name.endswith("bias")]
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
    adapt(model, arm("frozen_half").parts, seed=0)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


# ---- What rests ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["frozen_head_orthogonal", "frozen_half"])
def test_frozen_weights_do_not_move_in_real_steps_with_decay_and_all_others_do(kind, name):
    model = tiny(kind)
    done = adapt(model, arm(name).parts, seed=0)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    frozen = set(frozen_names(model))
    assert done.frozen == sum(before[name].numel() for name in frozen) > 0
    assert done.frozen + done.trainable == sum(value.numel() for value in before.values())
    fine_tuned(model, 20)
    unused = {"vit.embeddings.mask_token"}  # no gradient reaches it
    for name, parameter in model.named_parameters():
        if name not in unused:
            assert torch.equal(before[name], parameter) == (name in frozen), name


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_the_heads_rests(kind):
    model = tiny(kind)
    adapt(model, arm("frozen_half").parts, seed=0)
    before = {role: projections(model, role) for role in ("query", "key")}
    fine_tuned(model, 3)
    for role in ("query", "key"):
        for old, new in zip(before[role], projections(model, role), strict=True):
            half = len(old) // 2
            assert torch.equal(old[:half], new[:half])
            assert not (old[half:] == new[half:]).all(dim=1).any()


def test_a_share_of_the_layers_rests():
    model = tiny("distilbert")
    adapt(model, both(start="keep", moves=Never(), share=0.5, share_of="layers"), seed=0)
    assert {layer_of(name) for name in frozen_names(model)} == {0}
    assert not any(isinstance(module, SplitLinear) for module in model.modules())


def test_fused_projections_freeze_query_and_key_and_train_the_value_exactly():
    """Against the same model unsplit, the gradients of two thirds masked, and their decay undone after each step."""

    def gpt2():
        return tiny("gpt2", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0).double()

    split, stock, start = gpt2(), gpt2(), gpt2().state_dict()
    adapt(split, arm("frozen_pretrained").parts, seed=0)
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
    governed = {name for name, roles in roles_of(tiny(kind)).items() if "query" in roles or "key" in roles}
    assert {stored_name(name) for name in scheduled} == governed & set(tiny(kind).state_dict())
    assert {rule.layer for rule in scheduled.values()} == {0, 1}
    assert all(parameter.requires_grad for parameter in model.parameters())


# ---- State dicts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_a_split_model_loads_what_a_stock_model_stores_and_the_reverse(kind):
    stock, split = tiny(kind, seed=5), tiny(kind)
    adapt(split, arm("frozen_half").parts, seed=0)
    split.load_state_dict(stock.state_dict())
    torch.testing.assert_close(split(**batch(split)).logits, stock(**batch(stock)).logits, atol=0, rtol=0)
    other = tiny(kind, seed=6)
    other.load_state_dict(copy.deepcopy(split).state_dict())
    torch.testing.assert_close(other(**batch(other)).logits, stock(**batch(stock)).logits, atol=0, rtol=0)


# ---- What it says, and what it refuses -----------------------------------------------------------------------------


def test_the_answer_says_what_was_done():
    done = adapt(tiny("gpt2"), arm("frozen_half").parts, seed=0)
    assert done.family == "GPT-2"
    assert len(done.projections) == 4
    lines = str(done).splitlines()
    assert lines[0] == f"GPT-2: {done.trainable:,} parameters trainable, {done.frozen:,} frozen"
    assert lines[1] == "the given queries and keys were replaced by newly drawn ones"
    assert lines[2] == "  transformer.h.0.attn.c_attn (query): head_orthogonal; 16 of 32 rows move never"
    kept = str(adapt(tiny("gpt2"), arm("frozen_pretrained").parts, seed=0))
    assert "replaced" not in kept
    assert "FreezeCallback" in str(adapt(tiny("gpt2"), arm("late_unfreeze").parts, seed=0))


def other_parts(name: str) -> list[str]:
    """The roles besides queries and keys that an arm speaks of."""
    return [
        role
        for role, part in for_given_weights(ARMS[name].parts).items()
        if role not in GOVERNED and part.start != KEPT
    ]


def without_a_matrix(name: str) -> list[str]:
    return [role for role, part in ARMS[name].parts.items() if STARTS[part.start].matrix_free]


@pytest.mark.parametrize("name", [name for name in ARMS if without_a_matrix(name)])
def test_an_arm_without_matrices_is_refused_for_a_model_that_has_them(name):
    with pytest.raises(UserError, match=rf"^parts\.{without_a_matrix(name)[0]}\.start: .* keeps its matrices$"):
        adapt(tiny("bert"), arm(name).parts, seed=0)


@pytest.mark.parametrize("name", [name for name in ARMS if not other_parts(name) and not without_a_matrix(name)])
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_every_arm_of_queries_and_keys_can_be_applied(kind, name):
    done = adapt(tiny(kind), arm(name.replace("quarter", "half")).parts, seed=0)
    assert (done.frozen > 0) == name.startswith("frozen")


@pytest.mark.parametrize("name", [name for name in ARMS if other_parts(name)])
def test_every_arm_of_other_parts_is_refused_before_anything_changes(name):
    model = tiny("bert")
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(UserError, match=rf"^parts\.{other_parts(name)[0]}: only queries and keys .* leave it out$"):
        adapt(model, arm(name).parts, seed=0)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(hasattr(module, "oelm_moves") for module in model.modules())


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (for_given_weights(Parts(value=Part(moves=Never()))), "parts.value: only queries and keys"),
        (Parts(value=Part(start="orthogonal")), "parts.value: only queries and keys"),
        (AS_GIVEN.model_copy(update={"output": Part()}), "parts.output: only queries and keys"),
        (AS_GIVEN.model_copy(update={"up": Part(start="keep", gain=2.0)}), "parts.up: only queries and keys"),
        (both(start="residual_normal"), "parts.query.start: cannot be residual_normal"),
        (both(share=0.3), "parts.query.share: 0.3 of 4 heads is not a whole number"),
        (both(share=0.25), "parts.key.share: 0.25 of 2 key heads is not a whole number"),
        (both(layers=[0, 2]), "parts.query.layers: layer 2 is not one of 0 to 1"),
        (both(layers="odd", share=0.5), "parts.query.layers: leave out either layers or share"),
        (both(share=0.25, share_of="layers"), "parts.query.share: 0.25 of 2 layers is not a whole number"),
    ],
)
def test_specs_that_cannot_be_applied_are_refused_before_anything_changes(spec, words):
    model = tiny("llama")
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(UserError, match=words):
        adapt(model, spec, seed=0)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_second_arm_is_refused():
    model = tiny("bert")
    adapt(model, arm("fine_tuned").parts, seed=0)
    with pytest.raises(UserError, match="already applied to it"):
        adapt(model, arm("fine_tuned").parts, seed=0)


def test_an_unknown_architecture_is_refused_by_naming_what_was_found():
    import transformers

    model = transformers.T5Model(
        transformers.T5Config(vocab_size=20, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    )
    with pytest.raises(UserError, match=r"T5Model.*encoder\.block\.N\.layer\.N\.SelfAttention \(T5Attention: q, k, v"):
        adapt(model, arm("fine_tuned").parts, seed=0)


def test_what_is_no_model_of_the_library_is_refused():
    with pytest.raises(UserError, match="Linear is not a model of the transformers library"):
        adapt(torch.nn.Linear(2, 2), arm("fine_tuned").parts, seed=0)


def test_cross_attention_is_refused():
    model = tiny("bert", "BertLMHeadModel", is_decoder=True, add_cross_attention=True)
    with pytest.raises(UserError, match="cross-attention"):
        adapt(model, arm("fine_tuned").parts, seed=0)


def test_dependent_rows_cannot_be_orthogonalised_and_nothing_is_changed():
    model = tiny("bert")
    with torch.no_grad():
        model.bert.encoder.layer[1].attention.self.key.weight[9] = 0
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(UserError, match=r"layer\.1\.attention\.self\.key: rows of key head 1 depend on one another"):
        adapt(model, arm("frozen_orthogonalised").parts, seed=0)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
