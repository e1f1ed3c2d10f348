"""A study file: what it means, and one line for every problem in it."""

import json
from pathlib import Path

import pytest
import yaml

from oelm.core.solving import Criterion
from oelm.machine.errors import UserError
from oelm.study.declaration import Neighbour, in_language, study_digest
from oelm.study.one_run import settings_for
from oelm.study.reading import load_study, study_of
from stored_runs import accuracy_claim, hypothesis, small_classification, small_probes, small_study, solving_claim

REPOSITORY = Path(__file__).parents[2]
FINDINGS = REPOSITORY / "docs" / "findings" / "tinystories_cpu"

TREE = {
    "question": "Does it hold?",
    "base": {"preset": "tiny", "data": "data/stories"},
    "arms": ["trained", "frozen_head_orthogonal"],
    "seeds": [0, 1, 2],
}
TUNED = {"grid": {"learning_rate": [1e-3, 2e-3]}}


def problem(make=lambda **changes: study_of({"name": "s"} | TREE | changes, name="s.yaml"), **changes) -> list[str]:
    with pytest.raises(UserError) as caught:
        make(**changes)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        (
            {
                "base": TREE["base"] | {"training": {"validation_split": "tune"}},
                "tuning": {"grid": {"learning_rate": [1e-3, 2e-3]}},
            },
            "base",
        ),
        ({"arms": {arm: {"set": {"validation_split": "tune"}} for arm in TREE["arms"]}}, "arms.trained.set"),
    ],
)
def test_final_runs_that_report_the_tuning_split_are_refused(changes, place):
    """Nothing would tell them from tuning runs, neither rates chosen on it nor a registration that comes late."""
    said = f"s.yaml: {place}: training.validation_split: tune is for tuning runs; report another split"
    assert said in problem(**changes)


def test_a_study_is_read_by_path_and_by_name(tmp_path, monkeypatch):
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "mine.yaml").write_text(yaml.safe_dump(TREE))
    monkeypatch.chdir(tmp_path)
    study = load_study("mine")
    assert study.name == "mine"
    assert study == load_study(tmp_path / "studies" / "mine.yaml")
    assert study.baseline == "trained"  # the first arm
    with pytest.raises(UserError, match=r"study 'other': no such file; in studies/: mine"):
        load_study("other")


@pytest.mark.parametrize("content", [b"", b"# only a comment\n", b"- 1", b"a: [", b"\xff\xfe", b"just words"])
def test_a_file_that_is_no_study_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "s.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        load_study(path)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(str(path))
    assert ("is empty; a study needs" in line) == (content in (b"", b"# only a comment\n"))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"baseline": "traned"}, "frozen_head_orthogonal; did you mean trained?"),
        ({"seeds": []}, "seeds: needs at least 1, has 0"),
        (
            {"tuning": {"grid": {"learning_rate": [1e-3, 2e-3]}, "seeds": [1000, 1000, 1000]}},
            "tuning.seeds: 1000 occurs twice",
        ),
        ({"seeds": ["1"]}, "seeds.0: '1' is a quoted number"),
        ({"arms": {"a": {"arm": "trained"}, "b": {"arm": "gpt_base"}}}, "arms a and b are the same computation"),
        (
            {"arms": {"trained": {}, "b": {"arm": "trained", "set": {"model.tide": False}}}},
            "arms.b.set: model.tide: unknown key; did you mean model.tied?",
        ),
        ({"arms": {"trained": {"set": {"learning_rate": "fast"}}}}, "arms.trained: training.learning_rate:"),
        ({"arms": {"../x": {"arm": "trained"}}}, "name '../x'"),
        ({"base": {"preset": "tiy"}}, "preset: unknown name 'tiy'; did you mean tiny?"),
        ({"tuning": {"grid": {"learning_rate": [1e-3]}}}, "tuning.grid.learning_rate: needs at least 2, has 1"),
        ({"tuning": {"grid": {"steps": [10.5, 20.0]}}}, "arms.trained: training.steps:"),
        ({"hypotheses": [hypothesis("fewer_parameters", least_frozen=None)]}, "fewer_parameters needs least_frozen"),
        ({"hypotheses": [hypothesis("faster", margin_percent=5)]}, "faster takes no margin; leave margin_percent out"),
        ({"hypotheses": [hypothesis("better", least_frozen=5)]}, "better takes no least_frozen; leave it out"),
        (
            {"hypotheses": [hypothesis(varies=["upp.moves"])]},
            "hypotheses.0.varies.0: 'upp.moves' is unknown; did you mean up.moves? (docs/studies.md lists all",
        ),
        ({"hypotheses": [hypothesis(margin_points=1)]}, "not_worse: margin_points is a margin of accuracy"),
        ({"hypotheses": [hypothesis("faster", measure="accuracy")]}, "measure is for not_worse, equivalent, better"),
        ({"hypotheses": [hypothesis("better", measure="accuracy")]}, "these runs are not compared by accuracy"),
        ({"beside": ["demo"]}, "beside.0: takes study and runs (got 'demo')"),
        ({"scope": {"en": "x"}}, "scope.zh: is missing"),
        ({"scope": 3}, "scope: is a text, or takes en and zh (got 3)"),
        ({"seeds": 3}, "seeds: must be a list (got 3)"),
        ({"seeds": [10**20]}, "seeds.0: must have at most 20 digits"),
        ({"arms": {"trained": {"set": {"model.kind": "encoder"}}}}, "arms.trained.set: a different kind of model"),
    ],
)  # fmt: skip
def test_a_problem_is_one_line_with_its_key(changes, line):
    (found,) = problem(**changes)
    assert line in found
    assert found.startswith("s.yaml: ") or "name " in found


def test_faults_of_every_kind_are_shown_together():
    lines = problem(
        sedes=[1],
        name="a/b",
        arms={
            "trained": {"set": {"learning_rat": 1}},
            "frozen_hed_orthogonal": None,
            "b": {"arm": "trained", "colour": 1},
        },
        base={"preset": "tiny", "arm": "trained", "data": "data/stories", "training": {"steps": 0}},
        tuning={"grid": {"weight_decay": [0.1, 0.1]}, "seeds": [0]},
        hypotheses=[hypothesis(margin_percent=None, control="frozen_normal", treatment="frozen_normal"), {"name": "x"}],
    )
    expected = [
        "sedes: unknown key; did you mean seeds?",
        "arms.b.colour: unknown key",
        "hypotheses.0: not_worse: not_worse needs margin_percent",
        "hypotheses.0: not_worse: treatment and control are both frozen_normal",
        "hypotheses.1.claim: is missing",
        "name 'a/b'",
        "arms.trained.set: learning_rat: unknown key",
        "base.arm: list the arms of a study under arms",
        "tuning.seeds: 0 is also one of seeds",
        "tuning.grid.training.weight_decay: needs at least two different values",
        "base: training.steps: must be at least 1 (got 0)",
        "did you mean frozen_head_orthogonal?",
    ]
    for each in expected:
        assert sum(each in line for line in lines) == 1, (each, lines)
    assert all(line.startswith("s.yaml: ") for line in lines)


def test_what_all_arms_share_is_said_once():
    (line,) = problem(base={"preset": "tiny", "data": "data/stories", "training": {"steps": 0}})
    assert "s.yaml: base: training.steps" in line
    (line,) = problem(arms={name: {"set": {"steps": 0}} for name in TREE["arms"]})
    assert "s.yaml: arms.trained: training.steps" in line


def test_no_fault_waits_for_another_to_be_mended():
    """A claim of a wrong kind cannot be read, a key that is none neither; whatever does not need them is looked at."""
    wrong = hypothesis(kind="nicer", control="nobody")
    lines = problem(
        colour=1,
        question=3,
        arms={"trained": None, "b": {"arm": "trained", "set": {"learning_rat": 1}}},
        base={"preset": "tiny", "training": {"steps": 0}},
        baseline="nobody",
        seeds=[1, 1, 2],
        tuning={"grid": {"learning_rate": [-1, 1e-3]}, "seeds": [2]},
        hypotheses=[wrong, hypothesis(name=wrong["name"], treatment="trained", control="b")],
    )
    expected = [
        "colour: unknown key",
        "question: is a text, or takes en and zh (got 3)",
        "hypotheses.0.kind: 'nicer' is not one of",
        "arms.b.set: learning_rat: unknown key",
        "base: training.steps: must be at least 1 (got 0)",
        "baseline: 'nobody' is not one of the arms trained, b",
        "nicer.control: 'nobody' is not one of the arms trained, b",
        "seeds: 1 occurs twice",
        "hypotheses: nicer occurs twice",
        "tuning.seeds: 2 is also one of seeds",
        "training.learning_rate: must be above 0 (got -1.0)",
    ]
    for each in expected:
        assert sum(each in line for line in lines) == 1, (each, lines)


@pytest.mark.parametrize("arms", [None, 3, {"trained": 3}])
def test_the_base_is_looked_at_where_the_arms_cannot_be(arms):
    lines = problem(arms=arms, base={"preset": "tiny", "training": {"steps": 0}})
    assert any("base: training.steps: must be at least 1" in line for line in lines)
    assert any("s.yaml: arms" in line for line in lines)


@pytest.mark.parametrize(
    ("changes", "meant"),
    [
        ({"margin_percent": 5}, "did you mean hypotheses.N.margin_percent?"),
        ({"training": {"steps": 3}}, "did you mean base.training?"),
        ({"label": "x"}, "did you mean arms.NAME.label?"),
        ({"hypotheses": [hypothesis() | {"seeds": [1]}]}, "hypotheses.0.seeds: unknown key; did you mean seeds"),
    ],
)
def test_a_hint_names_a_place_where_the_key_is_taken(changes, meant):
    (line,) = problem(**changes)
    assert meant in line


def test_short_keys_mean_what_they_mean_on_the_command_line():
    arms = {"trained": {"set": {"weight_decay": 0.2}}, "frozen_normal": None}
    study = small_study(arms=arms, tuning={"grid": {"learning_rate": [2e-3, 1e-3, 1e-3]}, "set": {"steps": 9}})
    assert study.arms["trained"].set == {"training.weight_decay": 0.2}
    assert study.tuning.grid == {"training.learning_rate": [1e-3, 2e-3]}  # in order, each once
    assert study.tuning.set == {"training.steps": 9}
    assert study.learning_rate_is_tuned


def test_what_counts_last_is_base_then_tuning_then_arm_then_grid():
    arms = {"trained": {"set": {"steps": 30}}}
    tuning = {"grid": {"learning_rate": [1e-3, 2e-3]}, "set": {"steps": 9, "batch_size": 2}}
    study = small_study(arms=arms, tuning=tuning)
    rate = {"training.learning_rate": 1e-3}
    tuned = settings_for(study, "trained", seed=1, values=rate, tuning=True).run.training
    final = settings_for(study, "trained", seed=1, values=rate).run.training
    assert (tuned.steps, tuned.batch_size, tuned.learning_rate, tuned.validation_split) == (30, 2, 1e-3, "tune")
    assert (final.steps, final.batch_size, final.learning_rate, final.validation_split) == (30, 4, 1e-3, "val")


def test_the_originals_names_are_arms():
    study = small_study(arms=["gpt_base", "oelm_no_freeze", "oelm_freeze", "oelm_random"])
    assert settings_for(study, "oelm_freeze", seed=0).run.arm == "frozen_head_orthogonal"


def test_texts_come_in_one_language_or_two():
    study = small_study(question={"en": "Does it hold?", "zh": "成立吗？"})
    assert in_language(study.question, "zh") == "成立吗？"
    assert in_language("the same", "zh") == "the same"
    assert small_study().scope is None
    assert small_study(scope="one corpus").scope == "one corpus"
    for key in ("question", "scope"):
        assert key in problem(**{key: {"en": "half"}})[0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"tuning": TUNED | {"set": {"learning_rate": 1e-2}}},
            "tuning.set.training.learning_rate: is also in the grid",
        ),
        (
            {"tuning": TUNED, "arms": {"trained": {"set": {"learning_rate": 1e-2}}}},
            "arms.trained.set.training.learning_rate: is also in the grid",
        ),
        ({"tuning": {"grid": {"seeds.weights": [1, 2]}}}, "tuning.grid.seeds.weights: only what a run computes"),
        ({"arms": ["trained", "trained"]}, "arms: trained occurs twice"),
        (
            {"tuning": {"grid": {"warmup_steps": [10, 50]}, "set": {"steps": 20}}},
            "warmup_steps 50 is more than steps 20",
        ),
    ],
)
def test_each_setting_has_one_place(changes, expected):
    (line,) = problem(small_study, **changes)
    assert expected in line


# ---- Studies that classify -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "line"),
    [
        (accuracy_claim(margin_points=None), "not_worse needs margin_points"),
        (accuracy_claim(margin_percent=5), "margin_percent is a margin of loss; this claim measures accuracy"),
        (
            accuracy_claim("better", measure="loss"),
            "these runs are not compared by loss: write measure: accuracy, with margin_points",
        ),
    ],
)
def test_a_claim_about_a_classifier_is_about_accuracy(claim, line):
    (found,) = problem(small_classification, hypotheses=[claim])
    assert line in found
    assert found.startswith("sentences: ")


def test_better_in_accuracy_needs_no_margin():
    study = small_classification(hypotheses=[accuracy_claim("better"), accuracy_claim("not_worse", margin_points=0.5)])
    assert (study.fine_tunes, study.measure.key) == (True, "accuracy")
    assert [claim.margin for claim in study.hypotheses] == [None, 0.5]
    assert (small_study().fine_tunes, small_study().measure.key) == (False, "loss")


# ---- Probes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"hypotheses": [solving_claim(solved_at=None)]}, "solves_more needs solved_at"),
        ({"hypotheses": [solving_claim(solved_at=90)]}, "solved_at: must be at most 1 (got 90)"),
        ({"hypotheses": [solving_claim(margin_points=1)]}, "margin_points is a margin of accuracy, probe_accuracy"),
        ({"hypotheses": [solving_claim("better", measure="probe_accuracy")]}, "better takes no solved_at"),
        ({"hypotheses": [solving_claim(difficulty=16)]}, "difficulty 16 is none of those of the data: 4, 8"),
        ({"hypotheses": [hypothesis("fewer_parameters", difficulty=8)]}, "difficulty is for claims about probes"),
        ({"tuning": TUNED | {"rank": "solved"}}, "tuning: rank: solved needs solved_at"),
        ({"tuning": TUNED | {"solved_at": 0.9}}, "tuning: solved_at is for rank: solved"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_claim_about_solving_is_one_line(changes, line):
    (found,) = problem(small_probes, **changes)
    assert line in found


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"hypotheses": [solving_claim()]}, "solves_more is for studies of probes, whose base.data begins with probe:"),
        ({"hypotheses": [hypothesis(solved_at=0.9)]}, "not_worse takes no solved_at; leave it out"),
        ({"hypotheses": [hypothesis(difficulty=8)]}, "difficulty is for claims about probes; leave it out"),
        ({"tuning": TUNED | {"rank": "solved", "solved_at": 0.9}}, "tuning.rank: solved is for studies of probes"),
    ],
)
def test_only_probes_are_solved(changes, line):
    (found,) = problem(small_study, **changes)
    assert line in found


def test_a_study_knows_every_accuracy_that_it_calls_solved():
    claims = [solving_claim("solves_more"), solving_claim("solves_sooner"), solving_claim(name="easy", difficulty=4)]
    study = small_probes(hypotheses=claims, tuning=TUNED | {"rank": "solved", "solved_at": 0.5})
    assert study.criteria == [Criterion(0.9), Criterion(0.9, 4), Criterion(0.5)]
    assert small_probes().criteria == []


def test_what_counts_as_solved_is_part_of_the_digest():
    assert study_digest(small_study()) == study_digest(small_study()) != study_digest(small_study(seeds=[0, 1]))
    one, other = (small_probes(hypotheses=[solving_claim(solved_at=level)]) for level in (0.9, 0.8))
    assert study_digest(one) != study_digest(other)
    ranked = (small_probes(tuning=TUNED | {"rank": "solved", "solved_at": level}) for level in (0.9, 0.8))
    assert len({study_digest(each) for each in (*ranked, small_probes(tuning=TUNED))}) == 3


def test_a_study_that_uses_no_later_key_keeps_its_digest():
    """The report that was stored when the keys were not there names the digest."""
    stored = json.loads((FINDINGS / "report" / "analysis_results.json").read_text(encoding="utf-8"))
    study = load_study("tinystories_cpu")
    assert study_digest(study) == stored["provenance"]["study_digest"]
    for used in ({"beside": [Neighbour(study="demo")]}, {"scope": "one corpus"}):
        assert study_digest(study.model_copy(update=used)) != study_digest(study)


# ---- Looks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"looks": [5, 3]}, "looks: 5, 3: numbers of seeds, each larger than the one before"),
        ({"looks": [2, 5]}, "looks: 2 is too early: a look needs at least 3 seeds"),
        ({"looks": [3, 6]}, "looks: 6 is beyond the seeds, of which there are 5"),
        ({"looks": [3, 4]}, "looks: the last one is 4, and there are 5 seeds: end with 5, or remove seeds"),
        ({"looks": [3, 5], "hypotheses": []}, "looks: no hypothesis is decided by seeds; leave looks out"),
    ],
)
def test_wrong_looks_are_one_line(changes, line):
    assert problem(small_study, **{"hypotheses": [hypothesis()], **changes}) == [f"small: {line}"]


def test_a_key_is_suggested_only_where_it_would_be_taken():
    """A margin goes by the measure, and tuning has one with halving alone; `margins` is not taken for `against`."""
    for key in ("margin", "margins"):
        claim = hypothesis() | {key: 5}
        del claim["margin_percent"]
        lines = problem(hypotheses=[claim])
        assert [line for line in lines if "did you mean" in line] == [
            f"s.yaml: hypotheses.0.{key}: unknown key; did you mean hypotheses.0.margin_percent?"
        ]
    assert not any("tuning.budgets" in line for line in problem(budgets=[0.5, 1]))
    halving = {"grid": {"learning_rate": [1e-3, 2e-3]}, "method": "halving", "seeds": [8, 9]}
    assert any("tuning.budgets" in line for line in problem(budgets=[0.5, 1], tuning=halving))


def test_an_arm_may_set_a_section():
    arms = {"trained": {}, "b": {"arm": "trained", "set": {"model": {"tied": False}, "training": {"steps": 3}}}}
    assert study_of({"name": "s"} | TREE | {"arms": arms}, name="s.yaml").arms["b"].set == {
        "model.tied": False, "training.steps": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "instead"), [("draws", 3, "list more seeds"), ("futility", True, "leave it out")]
)
def test_a_key_of_an_earlier_version_is_one_line_that_says_what_to_write_instead(key, value, instead):
    (line,) = problem(small_study, **{key: value})
    assert line.startswith(f"small: {key}: no longer a key; ")
    assert instead in line


def test_looks_are_not_judged_by_seeds_that_were_left_out():
    lines = problem(small_study, hypotheses=[hypothesis()], looks=[3, 5], seeds=["a", 1, 2, 3, 4])
    assert not any("looks" in line for line in lines)
