"""The study of the cost of freezing against scale: what it declares before any of its runs."""

from pathlib import Path

import pytest

from oelm.core.config import ResolvedRun
from oelm.study.at_sizes import larger_runs
from oelm.study.confounds import confounds
from oelm.study.declaration import Bilingual
from oelm.study.one_run import settings_for
from oelm.study.plan import planned
from oelm.study.reading import load_study
from oelm.study.shelf import Shelf


@pytest.fixture(scope="module")
def study():
    return load_study("tinystories_scale")


def test_every_text_is_in_both_languages_and_every_claim_says_when_it_fails(study):
    texts = [study.question, study.scope, *(arm.label for arm in study.arms.values())]
    texts += [text for claim in study.hypotheses for text in (claim.claim, claim.fails_when)]
    assert all(isinstance(text, Bilingual) for text in texts)


def test_the_study_that_checks_the_forecast_has_its_size(study):
    check = load_study(Path(__file__).parents[2] / "docs/findings/tinystories_scale/width512.yaml")
    own, ((_, _, forecast),) = settings_for(check, "trained_orthogonal+steps600", seed=0).run, larger_runs(study)
    assert own.model == forecast.model
    assert [own.training.steps, own.training.batch_size] == [forecast.training.steps, forecast.training.batch_size]
    assert check.tuning.budgets == study.tuning.budgets


def test_nothing_differs_between_arms_but_what_their_claims_are_about(study, tmp_path):
    plan = planned(study, Shelf(tmp_path), facts={"vocabulary": 4096})
    assert all(isinstance(run.run, ResolvedRun) for run in plan.tuning)
    assert not any(confounds(study, plan).values())
