"""A run's identity, its derived defaults, and what validation refuses."""

import json

import pytest
from pydantic import ValidationError

from oelm.core.config import (
    FORWARD_SHARE_OF_A_TRAINING_STEP,
    PRESETS,
    Encoder,
    Execution,
    Model,
    ResolvedRun,
    Run,
    Training,
    Unresolved,
    as_far_as_known,
    fingerprint,
    resolved,
    resolved_model,
    resolved_training,
    stored_form,
)
from oelm.core.parts import Part
from oelm.core.settings import load_settings
from oelm.run.directory import flat


def identity(run: Run, digest: str = "data") -> str:
    return fingerprint(resolved(run, {"vocabulary": 64}), data_digest=digest)


def test_a_changed_setting_is_another_run_and_a_renamed_one_is_not():
    run = Run()
    assert identity(run) != identity(run.model_copy(update={"training": Training(learning_rate=1e-3)}))
    assert identity(run) != identity(run, digest="other data")
    assert identity(run) == identity(run.model_copy(update={"arm": "renamed", "data": "moved/elsewhere"}))


def test_a_default_written_out_is_the_same_run():
    assert identity(Run()) == identity(Run(model=Model(d_ff=2048), training=Training(warmup_steps=2000)))


def test_runs_from_before_scores_had_a_source_are_the_same_runs():
    assert "source" not in stored_form(resolved(Run(), {"vocabulary": 64}))["model"]["scores"]
    assert Model.model_validate({"scores": {"source": "tokens"}}) == Model()
    for source in ("distance", "nothing"):
        run = Run(model=Model.model_validate({"scores": {"source": source}}))
        assert identity(run) != identity(Run())
        assert Model.model_validate_json(run.model.model_dump_json()) == run.model


def test_where_a_run_executes_cannot_enter_its_identity():
    assert not set(Execution.model_fields) & set(Run.model_fields)


def test_documents_names_are_the_same_runs_as_ours():
    named = [load_settings(preset="tiny", arm=arm).run for arm in ("oelm_v2", "frozen_head_orthogonal")]
    assert identity(named[0]) == identity(named[1])


@pytest.mark.parametrize("steps", [1, 7, 100, 3_000, 100_000])
@pytest.mark.parametrize("batch_size", [1, 8, 480])
def test_validation_costs_at_most_a_tenth_of_training_by_arithmetic(steps, batch_size):
    training = resolved_training(Training(steps=steps, batch_size=batch_size))
    validations = -(-steps // training.validate_every)
    sequences = validations * training.validation_sequences + training.final_validation_sequences
    cost = sequences * FORWARD_SHARE_OF_A_TRAINING_STEP / (steps * batch_size)
    least_there_is = validations == training.validation_sequences == training.final_validation_sequences == 1
    assert cost <= 0.1 or least_there_is


def test_small_runs_warm_up_for_a_tenth():
    assert resolved_training(Training(steps=100)).warmup_steps == 10
    assert resolved_training(Training()).warmup_steps == 2000


@pytest.mark.parametrize("preset", PRESETS)
def test_a_resolved_run_is_stored_as_a_declared_one_that_says_the_same(preset):
    declared, facts = PRESETS[preset], dict.fromkeys(Encoder.FROM_DATA, 64)
    run = resolved(declared, facts)
    tree = run.model_dump(mode="json")
    assert json.dumps(Run.model_validate(tree).model_dump(mode="json")) == json.dumps(tree)
    assert json.dumps(stored_form(resolved(run))) == json.dumps(stored_form(run))
    assert [key for key, value in flat(tree).items() if value is None] == []


@pytest.mark.parametrize("preset", PRESETS)
def test_a_run_is_resolved_or_says_what_is_missing(preset):
    run = PRESETS[preset]
    missing = [f"model.{name}" for name in run.model.FROM_DATA if getattr(run.model, name) is None]
    known = as_far_as_known(run)
    assert isinstance(known, ResolvedRun) == (not missing)
    assert known.training.warmup_steps is not None
    if missing:
        with pytest.raises(Unresolved) as error:
            resolved(run)
        assert error.value.keys == missing
    else:
        assert resolved(run) == known


def test_facts_fill_only_what_is_left_to_the_data():
    run = Run(model=Model(vocabulary=32, d_model=64))
    assert resolved(run, {"vocabulary": 64, "d_ff": 1, "d_model": 1}).model == resolved_model(
        Model(vocabulary=32, d_model=64, d_ff=256)
    )


def test_a_share_must_be_a_whole_number_of_heads():
    with pytest.raises(ValidationError, match="not a whole number"):
        Model(num_heads=8, parts={"query": Part(share=0.3).model_dump()})


def test_values_are_frozen():
    with pytest.raises(ValidationError):
        Run().training.steps = 3
