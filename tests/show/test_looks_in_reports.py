"""What the report of a study with looks says: what is decided, at what error rate, what comes next, what was saved."""

from contextlib import suppress

import numpy as np
import pytest

from instant_slots import InstantSlots, Killed, run_study
from oelm.analysis.summary import findings_of
from oelm.show.article import Table
from oelm.show.content import article_of
from oelm.show.markdown import escaped, markdown
from oelm.show.words import say
from oelm.study.shelf import Shelf
from stored_runs import hypothesis, small_probes, small_study, solving_claim, store_study

OPEN = "frozen_normal"


def losses(arm, seed, stage, point):
    return 2 + (0.0488 if arm == OPEN else 0.0) + float(np.random.default_rng([len(arm), seed]).normal(0, 0.004))


CLAIMS = [hypothesis(name="clear"), hypothesis(name="unclear", treatment=OPEN)]
ARMS = ["trained", "frozen_head_orthogonal", OPEN]


def study_with_looks(arms=ARMS, claims=CLAIMS):
    return small_study(arms=arms, seeds=list(range(8)), looks=[4, 6, 8], hypotheses=claims)


def findings_when_killed(folder, lives):
    """Of a study of two claims whose controller is killed after so many runs."""
    study = study_with_looks()
    with pytest.raises(Killed):
        run_study(study, InstantSlots(folder, losses, lives=lives))
    return findings_of(study, Shelf(folder))


@pytest.fixture(scope="module")
def half_finished(tmp_path_factory):
    """Killed after the first look, which decided one of two claims."""
    findings = findings_when_killed(tmp_path_factory.mktemp("half"), 13)
    return {
        language: markdown(article_of(findings, language, figures=()), figure_paths={}) for language in ("en", "zh")
    }


def test_a_half_finished_study_says_what_is_decided_at_what_error_rate_and_what_the_next_look_costs(half_finished):
    text = half_finished["en"]
    assert say("en", "box.look.settled", seeds=4, planned=8) in text
    assert say("en", "box.look.open", seeds=4, planned=8) in text
    assert text.index("## Verdicts") < text.index("## Looks") < text.index(say("en", "heading.provenance"))
    assert "95 % interval over all looks" in text
    assert "| 1 of 3 | clear (supported) | unclear |" in text
    assert "| 2 of 3 | – | – | not taken yet | 6 | 0.0236 | 0.0202 |" in text
    assert (
        "Next: look 2 of 3, at 6 seeds, for the claims that are still open: unclear. Runs that it still needs: 3 ("
        in text
    )
    for code in ("partial.numbers.looks", "verdicts.method.looks"):
        assert escaped(say("en", code)) in text
    assert "oelm run small" in text
    assert "Final runs that are not needed: 4 of 24 (" in text
    assert "Final runs finished: 13 of 20." in text
    chinese = half_finished["zh"]
    assert say("zh", "box.look.settled", seeds=4, planned=8) in chinese
    for fact in ("第 2／3 次检视（6 个种子）", "还需运行 3 次（", "oelm run small", "24 次中的 4 次（"):
        assert fact in chinese


def test_before_the_first_look_there_is_a_difference_and_no_interval(tmp_path):
    """Three seeds of four: the intervals that hold at all looks are those of the looks."""
    findings = findings_when_killed(tmp_path, 9)
    text = markdown(article_of(findings, "en", figures=()), figure_paths={})
    assert all(len(verdict.difference.seeds) == 3 for verdict in findings.verdicts)
    assert say("en", "box.look.before", seeds=4, planned=8) in text
    assert "difference: " in text
    assert "interval over all looks" not in text


def test_looks_after_the_last_decision_are_not_needed(tmp_path):
    study = study_with_looks(ARMS[:2], CLAIMS[:1])
    run_study(study, InstantSlots(tmp_path, losses))
    text = markdown(article_of(findings_of(study, Shelf(tmp_path)), "en", figures=()), figure_paths={})
    assert "| 2 of 3 | – | – | not needed | 6 |" in text
    assert "not taken yet" not in text
    assert "Every planned run has a result, except those that looks made unnecessary" in text


def test_each_test_that_decides_claims_has_its_own_levels(tmp_path):
    """Sign tests are held to increments of the spending, which are stricter than the levels of the t test."""
    of_signs = small_probes(hypotheses=[solving_claim("solves_sooner")], looks=[4, 6, 8])
    assert level_columns(of_signs, tmp_path / "signs") == {"level, sign test": ["0.0056", "0.0180", "0.0264"]}
    assert level_columns(study_with_looks(), tmp_path / "t") == {"level, t test": ["0.0056", "0.0202", "0.0389"]}


def level_columns(study, folder):
    shelf = store_study(study, folder, losses)
    blocks = article_of(findings_of(study, shelf), "en", figures=()).blocks
    table = next(block for block in blocks if isinstance(block, Table) and block.header[0] == "look")
    places = [place for place, name in enumerate(table.header) if name.startswith("level")]
    return {table.header[place]: [row[place] for row in table.rows] for place in places}


@pytest.mark.parametrize("lives", [8, 16])
def test_looks_at_claims_about_other_sizes_have_costs(tmp_path, lives):
    """Before the look that decides a claim at a size that is not the main one, and after it."""
    claims = [hypothesis(name="main"), hypothesis(name="other", size="width16")]
    keys = {"looks": [3, 6], "sizes": {"width": [16, 32]}, "main_size": "width32"}
    study = small_study(arms=ARMS[:2], seeds=list(range(6)), hypotheses=claims, **keys)
    slots = InstantSlots(tmp_path, lambda arm, *rest: losses(arm.partition("+")[0], *rest), lives=lives)
    with suppress(Killed):
        run_study(study, slots)
    text = markdown(article_of(findings_of(study, Shelf(tmp_path)), "en", figures=()), figure_paths={})
    expected = "Runs that it still needs: 4 (" if lives == 8 else "Final runs that are not needed: 12 of 24 ("
    assert expected in text


def test_a_study_without_looks_says_nothing_of_them(complete):
    text = markdown(article_of(complete, "en", figures=()), figure_paths={})
    assert "look" not in text.replace("its looks end it early", "")  # of another study
