"""Closed form == counted, to the last parameter, for every preset and arm."""

import pytest
import torch

from oelm.accounting import parts, totals, training_flops_per_token
from oelm.arms import GPT_ARMS
from oelm.config import PRESETS, Model, resolved
from oelm.model.parameters import counts_by_part
from oelm.model.transformer import GPT
from oelm.settings import load_settings

MIB = 2**20
BOTH_FROZEN = ("frozen_orthogonal", "frozen_head_orthogonal", "frozen_normal", "frozen_scaled_normal")


def model_of(preset: str, arm: str):
    return resolved(load_settings(preset=preset, arm=arm).run, {"vocabulary": 1024}).model


@pytest.mark.parametrize("arm", GPT_ARMS)
def test_medium_512_has_the_same_total_in_every_arm(arm):
    assert totals(model_of("medium-512", arm)).total == 44_896_768


@pytest.mark.parametrize("arm", BOTH_FROZEN)
def test_medium_512_with_frozen_queries_and_keys(arm):
    counted = totals(model_of("medium-512", arm))
    assert (counted.trainable, counted.frozen) == (41_751_040, 3_145_728)


def test_bytes_of_weights_and_moments_at_medium_512():
    trained, frozen = (totals(model_of("medium-512", arm)) for arm in ("trained", "frozen_head_orthogonal"))
    assert round((trained.weight_bytes + trained.optimizer_bytes) / MIB, 1) == 513.8
    assert round((frozen.weight_bytes + frozen.optimizer_bytes) / MIB, 1) == 489.8


@pytest.mark.parametrize("preset", [name for name, run in PRESETS.items() if isinstance(run.model, Model)])
@pytest.mark.parametrize("arm", GPT_ARMS)
def test_closed_form_equals_counted_for_every_role_and_layer(preset, arm):
    model = model_of(preset, arm)
    with torch.device("meta"):
        counted = counts_by_part(GPT(model))
    assert {(part.role, part.layer): (part.total, part.frozen) for part in parts(model)} == counted


def test_a_share_of_heads_or_layers_counts_by_element():
    half, quarter = (totals(model_of("medium-512", arm)).frozen for arm in ("frozen_half", "frozen_quarter"))
    assert (half, quarter) == (3_145_728 // 2, 3_145_728 // 4)


@pytest.mark.parametrize(("vocabulary", "expected"), [(50257, 0.977), (4096, 0.953)])
def test_theory_of_what_skipped_weight_gradients_save(vocabulary, expected):
    trained, frozen = (
        training_flops_per_token(model_of("medium-512", arm).model_copy(update={"vocabulary": vocabulary}))
        for arm in ("trained", "frozen_head_orthogonal")
    )
    assert frozen / trained == pytest.approx(expected, abs=0.0006)
