"""What the report of a study with looks says: what is decided, at what error rate, what comes next, what was saved."""

import numpy as np
import pytest

from instant_slots import InstantSlots, Killed, run_study
from oelm.analysis.summary import findings_of
from oelm.reporting.content import article_of
from oelm.reporting.markdown import markdown
from oelm.study.shelf import Shelf
from stored_runs import hypothesis, small_study

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
    assert "look: 1 of 3, at 4 seeds: no further seeds are needed" in text
    assert "look: 1 of 3, at 4 seeds: still open" in text
    assert "95 % interval over all looks" in text
    assert "| 1 of 3 | clear (supported) | unclear |" in text
    assert "| 2 of 3 | – | – | not taken yet | 6 | 0.0236 | 0.0202 |" in text
    assert (
        "Next: look 2 of 3, at 6 seeds, for the claims that are still open (1). Runs that it still needs: 3 (" in text
    )
    assert "Final runs that are not needed: 4 of 24 (" in text
    assert "at most 5 %, for all confirmatory claims together" in text
    assert "refuted at any look is at most 5 % for each claim by itself" in text
    assert "Final runs finished: 13 of 20." in text


def test_before_the_first_look_there_is_a_difference_and_no_interval(tmp_path):
    """Three seeds of four: the intervals that hold at all looks are those of the looks."""
    findings = findings_when_killed(tmp_path, 9)
    text = markdown(article_of(findings, "en", figures=()), figure_paths={})
    assert all(len(verdict.difference.seeds) == 3 for verdict in findings.verdicts)
    assert "look: none taken yet; the first is at 4 seeds" in text
    assert "difference: " in text
    assert "interval over all looks" not in text


def test_looks_after_the_last_decision_are_not_needed(tmp_path):
    study = study_with_looks(ARMS[:2], CLAIMS[:1])
    run_study(study, InstantSlots(tmp_path, losses))
    text = markdown(article_of(findings_of(study, Shelf(tmp_path)), "en", figures=()), figure_paths={})
    assert "| 2 of 3 | – | – | not needed | 6 |" in text
    assert "not taken yet" not in text


def test_the_chinese_report_says_the_same(half_finished):
    text = half_finished["zh"]
    assert "第 1／3 次（4 个种子）：不再需要更多种子" in text
    assert "下一次：第 2／3 次检视（6 个种子），针对尚未判定的 1 个假设。还需运行 3 次（" in text
    assert "不再需要的最终运行：24 次中的 4 次（" in text


def test_a_study_without_looks_says_nothing_of_them(complete):
    assert "look" not in markdown(article_of(complete, "en", figures=()), figure_paths={})
