"""The last page draws no conclusion but the verdicts on what was declared, and advises nothing that would undo them."""

import pytest

from oelm.analysis.summary import findings_of
from oelm.show.article import visible_text
from oelm.show.closing import conclusions, side_of
from oelm.show.content import article_of
from oelm.study.registration import register
from oelm.study.shelf import Shelf
from stored_runs import hypothesis, small_study, store_study
from study.test_departures import store_runs

ARMS = ["trained", "frozen_head_orthogonal"]
FOLLOWS = {"better": "Larger models.", "equal": "Make it a gain.", "worse": "Find out why."}
WOBBLE = (0.0, 0.004, -0.004, 0.002, -0.002)


def study_of(*claims, **changes):
    return small_study(**{"arms": ARMS, "hypotheses": list(claims), "consequences": FOLLOWS} | changes)


def findings_with(study, folder, effect):
    """The frozen arm differs by so many nats, give or take."""
    return findings_of(
        study, store_study(study, folder, lambda arm, seed, *_: 2.0 + (arm != "trained") * (effect + WOBBLE[seed]))
    )


def closing_text(findings, language="en") -> str:
    return "\n".join(map(str, conclusions(findings, language, ())))


def followed(findings) -> set[str]:
    text = closing_text(findings)
    return {place for place, line in FOLLOWS.items() if line in text}


NOT_WORSE, BETTER = hypothesis("not_worse"), hypothesis("better")
SAME = hypothesis("equivalent")


@pytest.mark.parametrize(
    ("claims", "effect", "expected"),
    [
        ([NOT_WORSE], -0.3, {"equal"}),  # far better, and nobody claimed it
        ([NOT_WORSE], 0.3, {"worse"}),
        ([NOT_WORSE], 0.0488, set()),  # on its margin: undecided
        ([BETTER], -0.3, {"better"}),
        ([BETTER | {"margin_percent": 5}], -0.01, set()),  # refuted, and better all the same
        ([NOT_WORSE, BETTER], -0.3, {"better"}),
        ([SAME], -0.3, {"better"}),
        ([NOT_WORSE, NOT_WORSE | {"name": "lenient", "margin_percent": 50}], 0.1, {"worse", "equal"}),
        ([NOT_WORSE | {"varies": ["moves"]}], 0.01, set()),  # confounded
        ([NOT_WORSE | {"treatment": "trained", "control": "frozen_head_orthogonal"}], 0.01, set()),
        ([hypothesis("fewer_parameters")], 0.01, set()),
    ],
)
def test_what_follows_goes_by_the_verdicts_on_declared_claims_alone(tmp_path, claims, effect, expected):
    assert followed(findings_with(study_of(*claims), tmp_path, effect)) == expected


def test_a_claim_that_lacks_a_run_has_no_consequence(tmp_path):
    study = study_of(NOT_WORSE)
    store_study(study, tmp_path, lambda arm, seed, *_: None if (arm, seed) == ("trained", 4) else 2.0 + seed)
    findings = findings_of(study, Shelf(tmp_path))
    assert followed(findings) == set()
    assert "Finish what is missing with: oelm run small" in closing_text(findings)


def test_a_claim_whose_every_run_diverged_is_worse(tmp_path):
    study = study_of(NOT_WORSE)
    store_study(study, tmp_path, lambda arm, seed, *_: 2.0 + seed if arm == "trained" else float("inf"))
    (verdict,) = findings_of(study, Shelf(tmp_path)).verdicts
    assert (verdict.outcome, side_of(verdict)) == ("refuted", "worse")


@pytest.mark.parametrize("effect", [-0.3, 0.3])
def test_no_text_says_more_than_the_claims_whatever_the_runs_are(tmp_path, effect):
    """The study declared that it is not worse by 5 %, so that nobody is told that it is better, or stays within."""
    findings = findings_with(study_of(NOT_WORSE, consequences={}), tmp_path, effect)
    said = closing_text(findings) + closing_text(findings, "zh")
    for more in ("beats", "优于", "stays within", "在预先声明的界值之内", "worse than trained", "差于不冻结"):
        assert more not in said
    assert (side_of(findings.verdicts[0]) == "worse") == (effect == 0.3)


def test_what_was_decided_by_a_look_has_its_consequence_although_seeds_are_missing(tmp_path):
    study = study_of(NOT_WORSE, seeds=[0, 1, 2, 3, 4], looks=[3, 5])
    losses = {arm: [2.0 + seed + 1e-4 * seed * place for seed in range(3)] for place, arm in enumerate(ARMS)}
    store_study(study, tmp_path, lambda arm, seed, *_: None if seed > 2 else losses[arm][seed])
    findings = findings_of(study, Shelf(tmp_path))
    assert findings.verdicts[0].look.number == 1
    assert followed(findings) == {"equal"}


# ---- Advice --------------------------------------------------------------------------------------------------------


def test_nobody_is_advised_to_add_seeds(tmp_path):
    """What is open after all runs is for another study, with other seeds; the numbers of seeds are declared before."""
    findings = findings_with(study_of(NOT_WORSE), tmp_path, 0.0488)
    assert findings.verdicts[0].outcome == "undecided"
    for language in ("en", "zh"):
        text = visible_text(article_of(findings, language, figures=()))
        assert "oelm new --confirm small" in closing_text(findings, language)
        for advice in ("Add seeds", "would probably decide", "more seeds would", "Plan at least", "增加随机种子"):
            assert advice not in text


def test_a_study_that_is_decided_as_declared_needs_no_advice_on_it(tmp_path):
    study = study_of(NOT_WORSE, seeds=[0, 1, 2, 3], tuning={"grid": {"learning_rate": [1e-3, 2e-3]}, "extend": 0})
    register(study, tmp_path)
    store_runs(tmp_path, study)
    findings = findings_of(study, Shelf(tmp_path))
    assert [(each.outcome, each.reservations) for each in findings.verdicts] == [("supported", [])]
    assert "--confirm" not in closing_text(findings)


def test_an_exploratory_study_is_sent_to_a_confirmation(tmp_path):
    findings = findings_with(study_of(NOT_WORSE), tmp_path, 0.01)
    assert [code for code, _ in findings.verdicts[0].reservations] == ["not_registered"]
    assert "oelm new --confirm small" in closing_text(findings)
