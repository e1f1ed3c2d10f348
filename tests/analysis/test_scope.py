"""The scope of a result is counted from the runs it rests on; a study can add words to it and change no number."""

import pytest

from oelm.analysis.findings import Scope, Span
from oelm.analysis.summary import findings_as_json, findings_of
from oelm.core.accounting import totals
from oelm.study.declaration import Bilingual
from stored_runs import accuracy_claim, hypothesis, small_classification, small_study, store_study

FROZEN = "frozen_head_orthogonal"
OTHER = "trained_head_orthogonal"


def found(study, folder):
    return findings_of(study, store_study(study, folder, lambda arm, seed, *_: 0.2 + 0.01 * seed + len(arm) / 1e4))


@pytest.fixture(scope="module")
def unequal(tmp_path_factory):
    """Two arms alike, one that is deeper and trained for longer."""
    arms = {"trained": {}, FROZEN: {}, OTHER: {"set": {"model.num_layers": 3, "steps": 60}}}
    claims = [hypothesis(name="alike"), hypothesis(name="unlike", treatment=OTHER, varies=["start", "scale"])]
    study = small_study(arms=arms, seeds=[0, 1], hypotheses=claims)
    return found(study, tmp_path_factory.mktemp("unequal"))


def test_the_scope_is_counted_from_the_configs(unequal):
    run = unequal.plan.by_arm["trained"][0].run
    size, read = totals(run.model).total, 40 * 4 * 16
    assert unequal.verdicts[0].scope == Scope(Span(size, size), Span(read, read), None, ["small"], None)


def test_arms_that_differ_span_the_scope_of_what_compares_them(unequal):
    small, large = (totals(unequal.plan.by_arm[arm][0].run.model).total for arm in ("trained", OTHER))
    assert small < large
    unlike = unequal.verdicts[1].scope
    assert (unlike.parameters, unlike.tokens) == (Span(small, large), Span(40 * 4 * 16, 60 * 4 * 16))
    assert unequal.scope == unlike  # of all arms


def test_the_length_of_tuning_runs_is_not_the_scope(tmp_path):
    tuning = {"grid": {"learning_rate": [1e-3, 2e-3]}, "set": {"steps": 8}, "extend": 0}
    study = small_study(arms=["trained", FROZEN], seeds=[0, 1], tuning=tuning, hypotheses=[hypothesis()])
    assert found(study, tmp_path).verdicts[0].scope.tokens == Span(40 * 4 * 16, 40 * 4 * 16)


def test_fine_tuning_counts_examples(tmp_path):
    study = small_classification(seeds=[0, 1], hypotheses=[accuracy_claim()])
    findings = found(study, tmp_path)
    assert findings.verdicts[0].scope.examples == Span(40 * 8, 40 * 8)
    assert findings.scope.data == ["sentences"]


def test_what_a_study_states_comes_on_top(tmp_path):
    words = {"en": "one corpus", "zh": "一种语料"}
    base = {"arms": ["trained", FROZEN], "seeds": [0, 1], "hypotheses": [hypothesis()]}
    plain, stated = (
        found(small_study(**base, **more), tmp_path / name) for name, more in (("a", {}), ("b", {"scope": words}))
    )
    one, other = plain.verdicts[0].scope, stated.verdicts[0].scope
    assert (one.stated, other.stated) == (None, Bilingual(**words))
    assert (one.parameters, one.tokens, one.data) == (other.parameters, other.tokens, other.data)
    assert findings_as_json(stated)["verdicts"][0]["scope"]["stated"] == words
