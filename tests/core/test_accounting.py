"""Closed form == counted, to the last parameter, for every preset, arm and family of encoders."""

import re

import pytest
import torch

from oelm.core.accounting import forward_flops_per_token, parts, totals, training_flops_per_token
from oelm.core.arms import GPT_ARMS, REPAIRS, RIVALS, WITHOUT_A_MATRIX
from oelm.core.arms import arm as named_arm
from oelm.core.config import PRESETS, Encoder, Model, ResolvedEncoder, Run, resolved
from oelm.core.model.parameters import counts_by_part
from oelm.core.model.transformer import GPT
from oelm.core.settings import load_settings
from small_encoders import TYPES, encoder_folder

MIB = 2**20


def model_of(preset: str, arm: str):
    return resolved(load_settings(preset=preset, arm=arm).run, {"vocabulary": 1024}).model


@pytest.mark.parametrize("arm", [name for name, treatment in GPT_ARMS.items() if treatment.governs_parts_alone])
def test_medium_512_has_the_same_total_in_every_arm_without_options(arm):
    """Where matrices are stored; the others store a few integers in the place of what they imply."""
    counted = totals(model_of("medium-512", arm))
    stored_instead = counted.frozen if counted.implied else 0
    assert counted.total + counted.implied - stored_instead == 44_896_768


@pytest.mark.parametrize(
    ("arm", "trainable", "frozen", "implied"),
    [
        ("identity_query", 43_323_904, 0, 1_572_864),
        ("frozen_selection", 41_751_040, 6_144, 3_145_728),
        ("frozen_hadamard", 41_751_040, 12_288, 3_145_728),
        ("frozen_orthogonal", 41_751_040, 3_145_728, 0),
        ("frozen_half", 43_323_904, 1_572_864, 0),
        ("frozen_up", 38_593_024, 6_303_744, 0),
    ],
)
def test_numbers_of_medium_512(arm, trainable, frozen, implied):
    counted = totals(model_of("medium-512", arm))
    assert (counted.trainable, counted.frozen, counted.implied) == (trainable, frozen, implied)
    assert counted.never_trained == frozen + implied


def test_a_matrix_that_nobody_stores_costs_no_product():
    """Forward and backward; of hadamard only its two small factors, 16 and 32 wide, in both passes."""
    flops = {arm: training_flops_per_token(model_of("medium-512", arm)) for arm in GPT_ARMS}
    layers, width = 6, 512
    assert flops["trained"] - flops["frozen_signed_permutation"] == 2 * 3 * 2 * layers * width * width
    factors = 2 * 2 * 2 * layers * width * (16 + 32)
    assert flops["frozen_hadamard"] - flops["frozen_signed_permutation"] == factors
    assert flops["frozen_selection"] == flops["frozen_signed_permutation"]


# Layers times what each adds: 8 temperatures, 512 shares, residuals 2 (4 x 512 + 512 x 4), a convolution 4 x 512.
@pytest.mark.parametrize(
    ("name", "added"),
    [("repaired", 52_272), ("temperature", 48), ("shift", 3_072), ("residual", 49_152), ("convolution", 12_288)],
)
def test_what_repairs_add_at_medium_512(name, added):
    for kind, frozen in (("frozen", 3_145_728), ("trained", 0)):
        counted = totals(model_of("medium-512", f"{kind}_orthogonal_{name}"))
        assert (counted.total, counted.frozen) == (44_896_768 + added, frozen)


def test_only_arms_that_add_weights_store_no_matrix_or_are_narrow_have_another_total_at_medium_512():
    """As both READMEs say."""
    other = {arm for arm in GPT_ARMS if totals(model_of("medium-512", arm)).total != 44_896_768}
    assert other == {*REPAIRS, *WITHOUT_A_MATRIX, *RIVALS}


@pytest.mark.parametrize("width", [4, 8, 16])
def test_narrow_queries_and_keys_at_medium_512(width):
    assert totals(model_of("medium-512", f"narrow_query_key_{width}")).total == 41_751_040 + 6 * 2 * 8 * width * 512


def test_what_scores_and_positions_count_at_medium_512():
    plain = totals(model_of("medium-512", "trained")).total
    for setting, added in {"positions=rotary": -512 * 512, "query_key_norm=true": 6 * 2 * 64}.items():
        run = load_settings(preset="medium-512", assignments=[f"model.{setting}" if "pos" in setting else setting]).run
        assert totals(resolved(run).model).total == plain + added


def test_scores_from_no_token_need_no_matrices_of_queries_and_keys_and_no_products_with_them():
    """The scores themselves are computed as always, half of the sequence on average."""
    plain, layers, width = model_of("medium-512", "trained"), 6, 512
    for source, added in {"nothing": 0, "distance": layers * width}.items():
        run = load_settings(preset="medium-512", assignments=[f"scores.source={source}"]).run
        model = resolved(run, {"vocabulary": 1024}).model
        assert totals(model).total == totals(plain).total - 2 * layers * width * width + added
        with torch.device("meta"):
            counted = counts_by_part(GPT(model))
        assert {(part.role, part.layer): (part.total, part.frozen, part.implied) for part in parts(model)} == counted
        saved = forward_flops_per_token(plain) - forward_flops_per_token(model)
        assert saved == 2 * 2 * layers * width * width
        assert training_flops_per_token(plain) - training_flops_per_token(model) == 3 * saved


def test_products_of_narrow_queries_and_keys_and_of_residuals():
    """Two operations a weight; scores of width 8 for half of the sequence on average, in each of 8 heads."""
    flops = {arm: forward_flops_per_token(model_of("medium-512", arm)) for arm in GPT_ARMS}
    layers, width, narrower = 6, 512, 8 * (64 - 8)
    assert flops["trained"] - flops["narrow_query_key_8"] == 2 * layers * narrower * (2 * width + (512 + 1) / 2)
    assert flops["trained_orthogonal_residual"] - flops["trained"] == 2 * 49_152
    for cheap in ("shift", "temperature", "convolution"):
        assert flops[f"trained_orthogonal_{cheap}"] == flops["trained"]


def test_bytes_of_weights_and_moments_at_medium_512():
    trained, frozen = (totals(model_of("medium-512", arm)) for arm in ("trained", "frozen_head_orthogonal"))
    assert round((trained.weight_bytes + trained.optimizer_bytes) / MIB, 1) == 513.8
    assert round((frozen.weight_bytes + frozen.optimizer_bytes) / MIB, 1) == 489.8


@pytest.mark.parametrize(
    "preset",
    [
        pytest.param(name, marks=[] if name in ("tiny", "medium-512") else [pytest.mark.trial])
        for name, run in PRESETS.items()
        if isinstance(run.model, Model)
    ],
)
@pytest.mark.parametrize("arm", GPT_ARMS)
def test_closed_form_equals_counted_for_every_role_and_layer(preset, arm):
    model = model_of(preset, arm)
    with torch.device("meta"):
        counted = counts_by_part(GPT(model))
    closed = {(part.role, part.layer): (part.total, part.frozen, part.implied) for part in parts(model)}
    assert closed == counted


def test_an_output_layer_of_its_own_is_counted_and_only_the_embedding_is_frozen():
    tied, untied = (model_of("tiny", "frozen_embedding").model_copy(update={"tied": tied}) for tied in (True, False))
    with torch.device("meta"):
        counted = counts_by_part(GPT(untied))
    assert {(part.role, part.layer): (part.total, part.frozen, 0) for part in parts(untied)} == counted
    matrix = untied.vocabulary * untied.d_model
    assert counted["output_layer", None] == (matrix, 0, 0)
    assert totals(untied).total == totals(tied).total + matrix
    assert totals(untied).frozen == totals(tied).frozen == matrix


def test_a_frozen_token_embedding_saves_products_only_where_it_is_the_output_layer():
    flops = {
        (arm, tied): training_flops_per_token(model_of("tiny", arm).model_copy(update={"tied": tied}))
        for arm in ("trained", "frozen_embedding")
        for tied in (True, False)
    }
    assert flops["trained", True] == flops["trained", False] == flops["frozen_embedding", False]
    assert flops["trained", True] - flops["frozen_embedding", True] == 2 * 1024 * model_of("tiny", "trained").d_model


@pytest.mark.parametrize(("vocabulary", "expected"), [(50257, 0.977), (4096, 0.953)])
def test_theory_of_what_skipped_weight_gradients_save(vocabulary, expected):
    trained, frozen = (
        training_flops_per_token(model_of("medium-512", arm).model_copy(update={"vocabulary": vocabulary}))
        for arm in ("trained", "frozen_head_orthogonal")
    )
    assert frozen / trained == pytest.approx(expected, abs=0.0006)


# ---- Encoders ----------------------------------------------------------------------------------------------------

ROLES = {
    "word_embeddings": "token_embedding",
    "position_embeddings": "position_embedding",
    "token_type_embeddings": "type_embedding",
    "query|q_lin": "query",
    "key|k_lin": "key",
    "value|v_lin": "value",
    "attention.output.dense|out_lin": "output",
    "intermediate.dense|lin1": "up",
    "layer.[0-9]+.output.dense|lin2": "down",
    ".*LayerNorm|.*layer_norm": "norm",
    "pooler.dense|pre_classifier|classifier": "head",
}


def counted_by_transformers(folder, *, labels: int) -> dict[tuple[str, int | None], int]:
    """(role, layer) -> number of parameters of the model that transformers builds."""
    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    config = transformers.AutoConfig.from_pretrained(folder, num_labels=labels)
    counts: dict[tuple[str, int | None], int] = {}
    for name, parameter in transformers.AutoModelForSequenceClassification.from_config(config).named_parameters():
        (role,) = [role for pattern, role in ROLES.items() if re.search(rf"(^|\.)({pattern})\.", name)]
        layer = re.search(r"\.layer\.([0-9]+)\.", name)
        key = role, int(layer[1]) if layer else None
        counts[key] = counts.get(key, 0) + parameter.numel()
    return counts


def small_encoder(folder, model_type: str = "bert", *, arm: str = "fine_tuned", labels: int = 3) -> ResolvedEncoder:
    from oelm.models.encoder_folder import open_encoder

    sizes = open_encoder(str(encoder_folder(folder, model_type))).sizes
    facts = sizes | {"labels": labels, "seq_len": 32, "mean_length": 20.5}
    return resolved(Run(model=Encoder(parts=named_arm(arm, kind="encoder").parts)), facts).model


@pytest.mark.parametrize("model_type", [*TYPES, "xlm-roberta", "camembert"])
@pytest.mark.parametrize("labels", [2, 3])
def test_closed_form_equals_what_transformers_builds(tmp_path, model_type, labels):
    encoder = small_encoder(tmp_path / "encoder", model_type, labels=labels)
    counted = counted_by_transformers(tmp_path / "encoder", labels=labels)
    assert {(part.role, part.layer): part.total for part in parts(encoder)} == counted
    assert totals(encoder).total == sum(counted.values())


@pytest.mark.parametrize(
    ("arm", "share"),
    [("fine_tuned", 0), ("frozen_pretrained", 1), ("frozen_head_orthogonal", 1), ("frozen_half", 0.5), ("every_n", 0)],
)
def test_frozen_queries_and_keys_of_an_encoder_count_with_their_biases(tmp_path, arm, share):
    encoder = small_encoder(tmp_path / "encoder", arm=arm)
    assert totals(encoder).frozen == share * 2 * 2 * (16 * 16 + 16)  # two projections in two layers
    assert {part.role for part in parts(encoder) if part.frozen} == ({"query", "key"} if share else set())
    forward, training = forward_flops_per_token(encoder), training_flops_per_token(encoder)
    assert training == pytest.approx(3 * forward - 2 * totals(encoder).frozen)
    embedding = small_encoder(tmp_path / "embedding", arm="frozen_embedding")  # only looked up: it saves no products
    assert training_flops_per_token(embedding) == pytest.approx(3 * forward)


@pytest.mark.parametrize("model_type", ["bert", "distilbert"])
@pytest.mark.parametrize("arm", ["frozen_up", "frozen_embedding", "frozen_norms", "reservoir"])
def test_frozen_parts_of_an_encoder_are_those_that_adapting_its_model_freezes(tmp_path, arm, model_type):
    from oelm.core.config import Seeds
    from oelm.core.model.parameters import counts_by_part, encoder_role_of
    from oelm.models.encoder import build_encoder

    encoder = small_encoder(tmp_path / "encoder", model_type, arm=arm).model_copy(update={"pretrained": False})
    model = build_encoder(encoder, Seeds(), folder=tmp_path / "encoder", labels=("a", "b", "c"))
    counted = {key: (count.total, count.frozen) for key, count in counts_by_part(model, encoder_role_of).items()}
    assert {(part.role, part.layer): (part.total, part.frozen) for part in parts(encoder)} == counted
    assert totals(encoder).frozen > 0


def test_flops_of_an_encoder_are_those_of_its_matrix_products(tmp_path):
    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    from torch.utils.flop_counter import FlopCounterMode

    encoder = small_encoder(tmp_path / "encoder").model_copy(update={"mean_length": 20.0})
    config = transformers.AutoConfig.from_pretrained(tmp_path / "encoder", num_labels=3, attn_implementation="eager")
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids=torch.ones(4, 20, dtype=torch.long))
    assert counter.get_total_flops() == 4 * 20 * forward_flops_per_token(encoder)
