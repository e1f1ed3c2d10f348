"""The confound check finds each of the originals' confounds where it is reproduced, and none in a clean study."""

import json
import math
from pathlib import Path

import pytest

from every_option import OPTIONS_SET
from oelm.core.options import OPTIONS
from oelm.execution.controller import confound_lines
from oelm.machine.errors import UserError
from oelm.run.directory import COMPARED_ENVIRONMENT
from oelm.study.confounds import confounds
from oelm.study.plan import planned
from oelm.study.shelf import Shelf
from stored_runs import (
    VOCABULARY,
    accuracy_claim,
    hypothesis,
    small_classification,
    small_study,
    store_finished,
    store_study,
    without_seal,
)

FROZEN = "frozen_head_orthogonal"
TUNING = {"grid": {"learning_rate": [5e-4, 1e-3, 2e-3]}, "set": {"steps": 20}}
MEDIUM = {"preset": "medium-512", "data": "data/tinystories"}


def declared(study):
    """Before any run."""
    return confounds(study, planned(study, Shelf(Path("nowhere")), facts={"vocabulary": VOCABULARY}))


def found(study, name="not_worse"):
    return {each.key: (each.treatment, each.control) for each in declared(study)[name]}


def two_arms(treatment: dict | None = None, control: dict | None = None, **changes):
    claims = changes.pop("hypotheses", [hypothesis()])
    return small_study(arms={"trained": control or {}, FROZEN: treatment or {}}, hypotheses=claims, **changes)


def losses(arm, seed, stage, point):
    best = {"trained": 1e-3, FROZEN: 2e-3}[arm]
    return 2.0 + 0.01 * seed + sum(abs(value - best) for _, value in point)


def test_a_bare_aspect_that_does_not_name_another_part_says_so():
    claim = hypothesis(varies=["moves", "start", "scale"], treatment="frozen_feed_forward")
    study = small_study(arms={"trained": {}, "frozen_feed_forward": {}}, hypotheses=[claim])
    lines = confound_lines(study, planned(study, Shelf(Path("nowhere")), facts={"vocabulary": VOCABULARY}))
    (said,) = [line for line in lines if line.startswith("  `moves` in varies means that of queries and keys")]
    assert said.endswith("add up.moves, down.moves")
    named = claim | {"varies": ["up", "down", "moves"]}
    study = small_study(arms={"trained": {}, "frozen_feed_forward": {}}, hypotheses=[named])
    assert confound_lines(study, planned(study, Shelf(Path("nowhere")))) == ["confounds: none found"]


# ---- Clean studies -------------------------------------------------------------------------------------------------


def test_a_clean_study_has_no_confound_before_and_after_its_runs(tmp_path):
    for number, study in enumerate([two_arms(), two_arms(tuning=TUNING)]):
        assert found(study) == {}
        shelf = store_study(study, tmp_path / str(number), losses)
        plan = planned(study, shelf)
        assert all(run.state == "finished" for run in plan.runs)
        assert confounds(study, plan) == {"not_worse": []}


@pytest.mark.parametrize(("key", "best"), [
    ("learning_rate", {"trained": 1e-3, FROZEN: 2e-3}),
    ("model.scores.query_key_width", {"trained": 4, FROZEN: 8}),
])  # fmt: skip
def test_values_tuned_on_the_common_grid_may_differ(tmp_path, key, best):
    values = [best["trained"] / 2, *best.values(), 2 * best[FROZEN]]
    study = two_arms(tuning=TUNING | {"grid": {key: values}})
    shelf = store_study(
        study, tmp_path, lambda arm, seed, _, point: 2.0 + sum(abs(value - best[arm]) for _, value in point)
    )
    plan = planned(study, shelf)
    assert plan.choices["trained"].values != plan.choices[FROZEN].values
    assert confounds(study, plan) == {"not_worse": []}


# ---- The originals' confounds --------------------------------------------------------------------------------------


def test_a_group_with_twice_the_processes_and_twice_the_tokens_is_found():
    study = two_arms({"processes": 4, "set": {"batch_size": 8}}, {"processes": 2})
    keys = found(study)
    assert keys["tokens_per_step"] == ("128", "64")
    assert keys["training.batch_size"] == ("8", "4")
    assert keys["processes"] == ("4", "2")
    assert "training.final_validation_sequences" in keys  # a larger batch has a larger validation budget


def test_orthogonal_against_random_compares_two_scales():
    claim = hypothesis("better", treatment=FROZEN, control="frozen_normal", varies=["start"])
    study = small_study(base=MEDIUM, arms=[FROZEN, "frozen_normal", "frozen_scaled_normal"], hypotheses=[claim])
    assert found(study, "better") == {"start.scale": ("0.04419", "0.02")}
    matched = hypothesis("better", treatment=FROZEN, control="frozen_scaled_normal", varies=["start"])
    clean = small_study(base=MEDIUM, arms=[FROZEN, "frozen_normal", "frozen_scaled_normal"], hypotheses=[matched])
    assert found(clean, "better") == {}


def test_a_frozen_orthogonal_arm_against_a_trained_normal_one_varies_three_things():
    study = two_arms(hypotheses=[hypothesis(varies=["moves"])])
    assert found(study) == {"start.family": ("head_orthogonal", "normal"), "start.scale": ("0.1768", "0.02")}
    assert found(two_arms(hypotheses=[hypothesis(varies=["start", "scale"])])) == {"moves": ("never", "always")}


def test_a_scale_matched_start_is_the_same_whatever_it_is_called():
    """Xavier at a square matrix is N(0, 1/d): the baseline's start must be stated too."""
    xavier = {f"model.parts.{name}.start": "xavier" for name in ("query", "key")}
    claim = hypothesis(control="trained", treatment="trained_scaled_normal", varies=[])
    arms = {"trained": {"set": xavier | {"training.weight_decay": 0.2}}, "trained_scaled_normal": {}}
    study = small_study(arms=arms, hypotheses=[claim])
    assert found(study) == {"training.weight_decay": ("0.1", "0.2")}


@pytest.mark.parametrize(
    ("setting", "value", "key"),
    [
        ("steps", 80, "training.steps"),
        ("learning_rate", 3e-4, "training.learning_rate"),
        ("validation_split", "test", "training.validation_split"),
        ("dropout", 0.1, "model.dropout"),
        ("seeds.data", 0, "seeds.data"),
        ("data", "data/other", "data"),
        ("model.parts.value.start", "orthogonal", "value.start"),
        ("model.parts.output.gain", 2.0, "output.scale"),
        ("model.parts.value.moves", {"kind": "never"}, "value.moves"),
        ("model.parts.key.gain", 2.0, None),  # of the scale, which is declared
        ("execution.threads", 2, "environment.threads"),
    ],
)
def test_whatever_one_arm_sets_for_itself_is_found(setting, value, key):
    for side in ("treatment", "control"):
        differences = found(two_arms(**{side: {"set": {setting: value}}}))
        assert key in differences if key else differences == {}


def test_tuning_runs_that_differ_are_found():
    """The arm's own value equals the base's, but only it escapes the shorter tuning runs."""
    keys = found(two_arms({"set": {"steps": 40}}, tuning=TUNING))
    assert keys["tuning.training.steps"] == ("40", "20")
    assert "training.steps" not in keys


def test_a_share_of_the_heads_is_an_aspect_of_its_own():
    claim = hypothesis("better", treatment="frozen_half", control=FROZEN, varies=[])
    study = small_study(arms=["frozen_half", FROZEN], hypotheses=[claim])
    assert found(study, "better") == {"share": ("0.5 of the heads", "all")}
    against_trained = hypothesis(treatment="frozen_half")
    assert found(small_study(arms=["trained", "frozen_half"], hypotheses=[against_trained])) == {}


# ---- Options -------------------------------------------------------------------------------------------------------


def test_every_option_is_tested_here():
    assert [key for _, key, _ in OPTIONS_SET.values()] == list(OPTIONS)


@pytest.mark.parametrize("setting", OPTIONS_SET)
@pytest.mark.parametrize("kind", ["not_worse", "faster"])
def test_every_difference_of_options_is_found_and_can_be_named(setting, kind):
    value, key, text = OPTIONS_SET[setting]

    def of(*varies: str) -> dict[str, tuple[str, str]]:
        claim = hypothesis(kind, varies=["start", "scale", "moves", *varies])
        if key == "scores.query_key_norm":
            claim["varies"].remove("scale")
        plain = {"arm": "trained"} if key == "scores.source" else {}  # which leaves no query to treat
        study = two_arms(plain | {"set": {setting: value}}, hypotheses=[claim])
        return {k: v for k, v in found(study, kind).items() if k != "start.scale"}

    assert of() == {key: (text, OPTIONS[key].otherwise[0])}
    assert of(key) == of(key.partition(".")[0]) == {}


@pytest.mark.parametrize("word", ["scale", "query.scale"])
def test_a_claim_about_the_scale_is_refused_where_a_norm_cancels_it(word):
    claim = hypothesis(varies=["start", "moves", "scores", word])
    with pytest.raises(UserError, match=rf"^.*: hypotheses\.0\.varies\.3: {word} decides nothing where scores\.query_"):
        found(two_arms({"set": {"model.scores.query_key_norm": True}}, hypotheses=[claim]))


# ---- After the runs ------------------------------------------------------------------------------------------------

OTHERWISE = {
    "data_digest": "e" * 64,
    "source_digest": "b" * 64,
    "device": "cuda:0",
    "processor": "Another Processor",
    "precision": "bfloat16",
    "compile": True,
    "threads": 2,
    "micro_batch_size": 2,
    "deterministic": False,
    "tf32": True,
    "world_size": 2,
    "versions.torch": "2.11.0",
}


def store_with(study, folder, environment_of):
    for run in planned(study, Shelf(folder), facts={"vocabulary": VOCABULARY}).final:
        store_finished(run, folder, losses(run.arm, run.seed, "final", ()), environment=environment_of(run))
    return confounds(study, planned(study, Shelf(folder)))["not_worse"]


def test_another_environment_of_one_arm_is_found(tmp_path):
    other = {key: value for key, value in OTHERWISE.items() if key != "versions.torch"}
    other["versions"] = {"torch": OTHERWISE["versions.torch"]}
    own = {"set": {"data": "its/own"}}  # what comes from one folder is of the same data
    differences = store_with(two_arms(own), tmp_path, lambda run: other if run.arm == FROZEN else {})
    assert set(OTHERWISE) == set(COMPARED_ENVIRONMENT)
    said = {f"environment.{key}": str(value).partition(":")[0] for key, value in OTHERWISE.items()}
    assert {each.key: each.treatment for each in differences} == said


def test_values_that_both_arms_have_are_told_seed_by_seed_where_they_differ(tmp_path):
    other, seeds = {"threads": 2}, {"trained": (1, 3), FROZEN: (2, 3)}
    (only,) = store_with(two_arms(), tmp_path, lambda run: other if run.seed in seeds[run.arm] else {})
    assert (only.treatment, only.control) == ("1 (seed 1) / 2 (seed 2)", "2 (seed 1) / 1 (seed 2)")


def test_one_run_of_another_environment_is_found(tmp_path):
    other = {"threads": 2}
    (only,) = store_with(two_arms(), tmp_path, lambda run: other if (run.arm, run.seed) == (FROZEN, 2) else {})
    assert only.key == "environment.threads"
    assert " / " in only.treatment


def test_source_digests_of_two_schemes_are_no_confound(tmp_path):
    newer = {"source_digest": "b" * 64, "source_scheme": 2}
    assert store_with(two_arms(), tmp_path, lambda run: newer if run.arm == FROZEN else {}) == []


def test_pairs_made_on_two_machines_are_fair(tmp_path):
    other = {"processor": "Another Processor", "threads": 2}
    assert store_with(two_arms(), tmp_path, lambda run: other if run.seed > 2 else {}) == []


def test_a_run_that_does_not_say_where_it_was_made_is_found(tmp_path):
    study = two_arms()
    shelf = store_study(study, tmp_path, losses)
    run = next(run for run in planned(study, shelf).final if run.arm == FROZEN)
    without_seal(run.stored.directory.path)
    run.stored.directory.environment_file.write_text(json.dumps({}))
    keys = {each.key for each in confounds(study, planned(study, Shelf(tmp_path)))["not_worse"]}
    assert keys == {f"environment.{key}" for key in COMPARED_ENVIRONMENT}


def test_where_equal_data_lies_is_no_confound_once_its_digest_is_known(tmp_path):
    study = two_arms({"set": {"data": "elsewhere/small"}})
    assert found(study) == {"data": ("elsewhere/small", "data/small")}
    assert store_with(study, tmp_path, lambda run: {}) == []


def test_seeds_that_ended_without_a_loss_in_one_arm_are_found(tmp_path):
    study = two_arms()
    shelf = store_study(study, tmp_path, lambda arm, seed, *_: math.inf if (arm, seed) == (FROZEN, 3) else 2.0 + seed)
    (only,) = confounds(study, planned(study, shelf))["not_worse"]
    assert (only.key, only.treatment, only.control) == ("seeds", "0, 1, 2, 4", "0, 1, 2, 3, 4")


@pytest.mark.parametrize("loss", [None, math.nan])
def test_seeds_that_are_still_to_come_are_no_confound(loss, tmp_path):
    """Missing, or failed and started again by the next `oelm run`."""
    study = two_arms()
    shelf = store_study(study, tmp_path, lambda arm, seed, *_: loss if (arm, seed) == (FROZEN, 3) else 2.0 + seed)
    assert confounds(study, planned(study, shelf))["not_worse"] == []


# ---- What matters to whom ------------------------------------------------------------------------------------------


def test_an_explanation_is_carried_along():
    reason = {"training.learning_rate": {"en": "as published", "zh": "如论文"}}
    study = two_arms({"set": {"learning_rate": 1e-2}}, hypotheses=[hypothesis(explained=reason)])
    (only,) = declared(study)["not_worse"]
    assert only.explained == "as published"


def test_parameters_depend_on_sizes_and_on_what_rests_alone():
    claim = hypothesis("fewer_parameters", varies=["moves"])
    irrelevant = {"learning_rate": 1e-2, "batch_size": 8, "steps": 10, "dropout": 0.1, "execution.threads": 2}
    assert found(two_arms({"set": irrelevant}, hypotheses=[claim]), "fewer_parameters") == {}
    relevant = {"d_ff": 256, "model.parts.value.moves": {"kind": "never"}}
    keys = found(two_arms({"set": relevant}, hypotheses=[claim]), "fewer_parameters")
    assert set(keys) == {"model.d_ff", "value.moves"}


def test_speed_depends_on_the_work_of_a_step_alone():
    claim = hypothesis("faster", varies=["moves"])
    irrelevant = {"learning_rate": 1e-2, "steps": 10, "weight_decay": 0.0, "execution.threads": 2}
    assert found(two_arms({"set": irrelevant, "processes": 2}, hypotheses=[claim]), "faster") == {}
    keys = found(two_arms({"set": {"batch_size": 8, "dropout": 0.1}}, hypotheses=[claim]), "faster")
    assert set(keys) == {"training.batch_size", "tokens_per_step", "model.dropout"}


# ---- Models that come with weights ---------------------------------------------------------------------------------


def two_encoders(treatment=None, control=None, *, arms=("frozen_pretrained", "fine_tuned"), **changes):
    own = dict(zip(arms, (treatment or {}, control or {}), strict=True))
    varies = changes.pop("varies", ["moves"])
    claim = accuracy_claim(treatment=arms[0], control=arms[1], varies=varies)
    return small_classification(**({"arms": own, "hypotheses": [claim]} | changes))


@pytest.mark.parametrize(
    ("arms", "differs"),
    [
        (("frozen_orthogonalised", "frozen_pretrained"), {"start.family", "start.scale"}),
        (("frozen_head_orthogonal", "frozen_orthogonalised"), {"start.family"}),
        (("frozen_head_orthogonal", "frozen_normal"), {"start.family", "start.scale"}),
        (("frozen_orthogonalised", "fine_tuned_orthogonalised"), {"moves"}),
    ],
)
def test_orthonormal_rows_have_one_scale_and_kept_weights_their_own(tmp_path, arms, differs):
    """The same before the sizes are known, which the data decides, and after."""
    study = two_encoders(arms=arms, varies=[])
    assert set(found(study)) == differs
    shelf = store_study(study, tmp_path, lambda *_: 0.3)
    after = {each.key: each for each in confounds(study, planned(study, shelf))["not_worse"]}
    assert set(after) == differs
    if arms == ("frozen_head_orthogonal", "frozen_normal"):
        assert found(study)["start.scale"] == ("1/sqrt(d)", "0.02")
        assert (after["start.scale"].treatment, after["start.scale"].control) == ("0.25", "0.02")


@pytest.mark.parametrize(
    ("setting", "value", "key"),
    [
        ("dropout", 0.0, "model.dropout"),
        ("data", "data/other", "data"),
    ],
)
def test_whatever_one_encoder_sets_for_itself_is_found(setting, value, key):
    assert key in found(two_encoders({"set": {setting: value}}))


def test_a_random_encoder_against_a_pretrained_one_is_found():
    arms = ("frozen_head_orthogonal", "frozen_normal")
    study = two_encoders({"set": {"pretrained": False}}, arms=arms, varies=["start", "scale"])
    assert found(study) == {"model.pretrained": ("False", "True")}


@pytest.mark.parametrize("kind", ["faster", "fewer_parameters"])
def test_the_data_decides_the_size_of_an_encoder(kind):
    more = {"least_frozen": 10} if kind == "fewer_parameters" else {}
    names = {"name": kind, "claim": "It is.", "kind": kind, "treatment": "frozen_pretrained", "control": "fine_tuned"}
    claim = names | {"varies": ["moves"]} | more
    arms = {"frozen_pretrained": {"set": {"data": "data/other", "learning_rate": 1e-3}}, "fine_tuned": {}}
    assert set(found(small_classification(arms=arms, hypotheses=[claim]), kind)) == {"data"}


def test_a_reason_for_what_cannot_differ_is_refused_with_a_suggestion():
    claim = hypothesis(explained={"training.learning_rat": "meant"})
    with pytest.raises(UserError, match=r"explained\.training\.learning_rat: .*did you mean training\.learning_rate"):
        declared(two_arms(hypotheses=[claim]))
    for key in ("tokens_per_step", "environment.processor", "tuning.training.steps", "start.scale", "seeds"):
        declared(two_arms(hypotheses=[hypothesis(explained={key: "meant"})]))
