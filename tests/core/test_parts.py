"""A row of the table is true of our GPT, and what is said of a part holds for its weights and for no others."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from oelm.core.accounting import parts as counted_in_closed_form
from oelm.core.config import ResolvedModel
from oelm.core.model.parameters import counts_by_part, layer_of, role_of, rules
from oelm.core.model.transformer import GPT
from oelm.core.moves import After, Always, Before, Every, Never
from oelm.core.parts import AS_GIVEN, BASELINE, KEPT, ROLES, Part, Parts, for_given_weights, problems_of
from oelm.core.settings import load_settings
from oelm.machine.errors import UserError
from small_runs import small_run

LAYERS = 4  # of the small run, and as many heads
IN_BLOCKS = [name for name, role in ROLES.items() if role.in_blocks]
BY_HEAD = [name for name, role in ROLES.items() if role.by_head]


def model_with(**parts: Part) -> ResolvedModel:
    """The small model with these parts, checked as any config is."""
    tree = small_run().model.model_dump() | {"parts": BASELINE.model_copy(update=parts).model_dump()}
    return ResolvedModel.model_validate(tree)


def with_start(role: str, **said: object) -> Part:
    return Part(start=ROLES[role].start, **said)


def on_meta(model: ResolvedModel) -> GPT:
    with torch.device("meta"):
        return GPT(model)


PLACES: list[tuple[str, dict[str, object]]] = [
    *product(ROLES, [{}]),
    *product(IN_BLOCKS, [{"layers": "odd"}, {"layers": "even"}, {"layers": [3, 0]}]),
    *product(BY_HEAD, [{"share": 0.25}, {"share": 0.5}]),
]


# ---- The rows ------------------------------------------------------------------------------------------------------


def test_every_weight_of_the_gpt_has_one_role_and_the_shape_that_its_row_says():
    model = small_run().model
    gpt = on_meta(model)
    found: set[str] = set()
    for role in ROLES.values():
        paths = [*role.outside, *(f"blocks.{layer}.{path}" for layer in range(LAYERS) for path in role.in_blocks)]
        for path in paths:
            own = dict(gpt.get_submodule(path).named_parameters())
            assert tuple(own["weight"].shape) == role.shape(model), path
            assert ("bias" in own) == role.has_bias, path
            assert sum(value.numel() for value in own.values()) == torch.tensor(role.weight_size(model)).prod(), path
            names = {f"{path}.{leaf}" for leaf in own}
            assert {role_of(name) for name in names} == {role.name}
            assert not names & found
            found |= names
    assert found == {name for name, _ in gpt.named_parameters()}


def test_every_role_is_a_part_that_an_arm_can_speak_of_in_the_order_of_the_table():
    assert list(Parts.model_fields) == list(ROLES) == [name for name, _ in BASELINE.items()]
    assert all(BASELINE.of(name) == Part(start=role.start) for name, role in ROLES.items())
    assert all(AS_GIVEN.of(name) == Part(start=KEPT) for name in ROLES)
    assert list(problems_of(BASELINE, num_heads=LAYERS, num_layers=LAYERS)) == []


# ---- Where a part holds --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "expected"), [("all", {0, 1, 2, 3}), ("odd", {1, 3}), ("even", {0, 2}), ([2], {2}), ([3, 0], {0, 3})]
)
def test_layers_are_counted_from_0(layers, expected):
    part = Part(layers=layers)
    assert {layer for layer in range(LAYERS) if part.holds_in(layer)} == expected
    assert part.holds_in(None) == (layers == "all")


@pytest.mark.parametrize(("role", "place"), PLACES)
def test_what_is_frozen_is_counted_and_requires_no_gradient_and_all_else_does(role, place):
    model = model_with(**{role: with_start(role, moves=Never(), **place)})
    gpt = on_meta(model)
    closed = {(part.role, part.layer): (part.total, part.frozen, 0) for part in counted_in_closed_form(model)}
    assert closed == counts_by_part(gpt)
    assert {each for each, _ in closed if closed[each, _][1]} == {role}
    frozen = {name for name, value in gpt.named_parameters() if not value.requires_grad}
    assert frozen == {name for name, rule in rules(gpt).items() if isinstance(rule.moves, Never)}
    assert {role_of(name) for name in frozen} == {role}
    layers, held = {layer_of(name) for name in frozen}, filter(Part(**place).holds_in, range(LAYERS))
    assert layers - {None} == (set(held) if role in IN_BLOCKS else set())
    assert (None in layers) == (bool(ROLES[role].outside) and not place)


@pytest.mark.parametrize("moves", [Every(steps=3), After(fraction=0.5), Before(fraction=0.5)], ids=lambda m: m.kind)
@pytest.mark.parametrize("role", ROLES)
def test_a_schedule_holds_for_the_weights_of_its_role_alone(role, moves):
    gpt = on_meta(model_with(**{role: with_start(role, moves=moves)}))
    scheduled = {name for name, rule in rules(gpt).items() if rule.moves == moves}
    assert scheduled == {name for name, _ in gpt.named_parameters() if role_of(name) == role}
    assert all(isinstance(rule.moves, Always) for name, rule in rules(gpt).items() if name not in scheduled)
    assert all(parameter.requires_grad for parameter in gpt.parameters())


# ---- Models that come with weights ---------------------------------------------------------------------------------


def test_for_given_weights_the_baseline_keeps_all_but_queries_and_keys():
    given = for_given_weights(BASELINE)
    assert {role for role, part in given.items() if part != AS_GIVEN.of(role)} == {"query", "key"}


@pytest.mark.parametrize("role", [name for name, role in ROLES.items() if not role.drawn_apart])
def test_for_given_weights_other_parts_keep_them_whatever_start_is_named_and_move_as_said(role):
    part = Part(start=ROLES[role].start, gain=2.0, moves=Never(), layers="all" if role.endswith("embedding") else [0])
    given = for_given_weights(Parts(**{role: part}))
    assert given == AS_GIVEN.model_copy(update={role: part.model_copy(update={"start": KEPT, "gain": 1.0})})
    assert for_given_weights(given) == given


def test_for_given_weights_a_query_that_is_not_mentioned_keeps_them_and_one_that_is_does_not():
    plain = Part()
    assert for_given_weights(Parts(key=Part(moves=Never()))).query == AS_GIVEN.query
    assert for_given_weights(Parts(key=Part(moves=Never()), query=plain)).query == plain


# ---- Bad input: one line, which begins with the key ----------------------------------------------------------------


def refused(*assignments: str) -> str:
    with pytest.raises(UserError) as error:
        load_settings(preset="tiny", assignments=assignments)
    (line,) = str(error.value).splitlines()
    assert line.startswith("--set ")
    return line.removeprefix("--set ")


@pytest.mark.parametrize(
    ("assignments", "line"),
    [
        (["model.parts.upp.gain=2"], "model.parts.upp.gain: unknown key; did you mean model.parts.up.gain?"),
        (["up.share=0.5"], "model.parts.up.share: its rows belong to no head; name layers instead"),
        (["position_embedding.share=0.5"], "model.parts.position_embedding.share: its rows belong to no head"),
        (["query.share=0.3"], "model.parts.query.share: 0.3 of 4 heads is not a whole number"),
        (["query.layers=[0, 4]"], "model.parts.query.layers: layer 4 is not one of 0 to 3"),
        (["query.layers=[1, 2, 1]"], "model.parts.query.layers: layer 1 is listed twice"),
        (["query.layers=odd", "query.share=0.5"], "model.parts.query.layers: leave out either layers or share"),
        (["up.layers=odd", "num_layers=1"],
         "model.parts.up.layers: the model has no odd layer (the first of its 1 is 0)"),
        (["token_embedding.layers=odd"], "model.parts.token_embedding.layers: it is in no layer; leave layers out"),
        (["position_embedding.layers=[0]"],
         "model.parts.position_embedding.layers: it is in no layer; leave layers out"),
        (["query.start=ones"], "model.parts.query.start: cannot be ones: only norm can"),
        (["output.start=head_orthogonal"],
         "model.parts.output.start: cannot be head_orthogonal: its rows belong to no head"),
        (["up.start=hadamard", "up.moves.kind=never"],
         "model.parts.up.start: cannot be hadamard: it needs a square matrix, as query, key, value and output have"),
        (["query.start=identity"],
         "model.parts.query.moves: must be never: identity stores no matrix that could be trained"),
        (["key.start=selection", "key.moves.kind=never", "key.share=0.5"],
         "model.parts.key.share: must be 1: selection stores no matrix that could be trained; name layers "
         "instead"),
        (["norm.start=normal"], "model.parts.norm.start: cannot be normal: it can only be ones"),
        (["up.start=keep"], "model.parts.up.start: cannot be keep: this model comes with no weights"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line_with_its_key(assignments, line):
    assert refused(*assignments) == line


@pytest.mark.parametrize("layers", ["sometimes", "[]", "[-1]", "[true]", "[0.5]", "[a]", "3", "null", "{a: 1}"])
def test_layers_are_all_odd_even_or_a_list(layers):
    expected = "model.parts.up.layers: must be all, odd, even, or a list of layers (the first is 0)"
    assert refused(f"up.layers={layers}").startswith(expected)


def test_every_problem_has_its_line():
    with pytest.raises(UserError) as error:
        load_settings(preset="tiny", assignments=["up.share=0.5", "norm.start=normal", "key.start=ones"])
    keys = [line.removeprefix("--set ").partition(": ")[0] for line in str(error.value).splitlines()]
    assert keys == ["model.parts.key.start", "model.parts.up.share", "model.parts.norm.start"]


def test_a_misspelt_part_of_a_file_is_refused_with_its_key(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("preset: tiny\nmodel: {parts: {feed_forward: {start: orthogonal}}}\n")
    with pytest.raises(UserError, match=r"run\.yaml: model\.parts\.feed_forward: unknown key; model\.parts takes .*up"):
        load_settings(str(file))
