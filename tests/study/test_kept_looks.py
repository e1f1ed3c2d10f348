"""Stored looks bind: whatever becomes of their runs, and only for the declaration that they were taken for."""

import json
import random
import shutil

import numpy as np
import pytest

from instant_slots import InstantSlots, run_study
from oelm.analysis.summary import findings_of
from oelm.execution.status import study_status
from oelm.machine.errors import UserError
from oelm.show.content import article_of
from oelm.storage.files import SEAL, digest_of, read_sealed
from oelm.study.decisions import CHOICES_FILE
from oelm.study.declaration import study_digest
from oelm.study.plan import planned
from oelm.study.shelf import Shelf
from stored_runs import facts_of, hypothesis, small_study, store_study

ARM = "frozen_head_orthogonal"


def study_with(**changes):
    keys = {"arms": ["trained", ARM], "seeds": [0, 1, 2, 3, 4], "looks": [3, 5], "hypotheses": [hypothesis()]}
    return small_study(**keys | changes)


def losses(arm, seed, stage="final", point=()):
    return 2 + float(np.random.default_rng([len(arm), seed]).normal(0, 0.0005))


def much_worse(arm, seed, stage="final", point=()):
    return losses(arm, seed) + (0.5 if arm == ARM else 0.0)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("once")
    run_study(study_with(), InstantSlots(folder, losses))
    return folder


@pytest.fixture
def folder(once, tmp_path):
    shutil.copytree(once, tmp_path / "runs")
    return tmp_path / "runs"


def test_a_look_stays_although_its_runs_are_repeated_with_other_results(folder):
    study = study_with()
    before = findings_of(study, Shelf(folder)).verdicts[0]
    for path in folder.glob(f"{ARM}-s*"):
        shutil.rmtree(path)
    slots = InstantSlots(folder, much_worse)
    plan, _ = run_study(study, slots)
    after = findings_of(study, Shelf(folder))
    assert slots.started == [f"{ARM} s{seed}" for seed in (0, 1, 2)]  # and none beyond the look
    assert before.outcome == after.verdicts[0].outcome == "supported"
    assert after.verdicts[0].difference == before.difference
    assert "look_runs_changed" in dict(after.notes)
    assert "look_runs_changed" in dict(plan.remarks)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"looks": [4, 5]}, "looks"),
        ({"looks": []}, "looks [3, 5], now []"),  # what was seen by then is not unseen
        ({"hypotheses": [hypothesis(margin_percent=1)]}, "hypotheses.not_worse.margin_percent 5, now 1"),
        ({"hypotheses": [hypothesis(), hypothesis("better")]}, "hypotheses.better.kind"),
        ({"seeds": [4, 3, 2, 1, 0]}, "seeds"),
        (
            {"base": study_with().base | {"training": {"steps": 50, "batch_size": 4, "learning_rate": 1e-3}}},
            "runs that",
        ),
    ],
    ids=["looks", "no looks", "margin", "family", "order", "config"],
)
def test_looks_for_another_declaration_start_nothing_and_name_what_differs(folder, changes, named):
    slots = InstantSlots(folder, losses)
    with pytest.raises(UserError, match="the claims were looked at") as error:
        run_study(study_with(**changes), slots)
    assert named in str(error.value)
    assert not slots.started


def sized(**changes):
    """With claims about scale, which a look counts in the family."""
    claims = [hypothesis(), hypothesis("grows"), hypothesis("shrinks", confirmatory=False)]
    return study_with(**{"sizes": {"steps": [20, 40, 80]}, "hypotheses": claims} | changes)


@pytest.fixture(scope="module")
def sized_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sized")
    run_study(sized(), InstantSlots(folder, losses))
    return folder


@pytest.mark.parametrize(
    "claims",
    [[hypothesis()], [hypothesis(), hypothesis("grows", confirmatory=False)], [hypothesis(), hypothesis("shrinks")]],
    ids=["removed", "no longer confirmatory", "another"],
)
def test_a_family_with_other_claims_about_scale_starts_nothing(sized_once, claims):
    assert planned(sized(), Shelf(sized_once)).blocked is None
    plan = planned(sized(hypotheses=claims), Shelf(sized_once))
    assert "confirmatory_claims_about_scale" in (plan.blocked or "")


def test_looks_that_were_stored_without_the_claims_about_scale_still_hold(sized_once, tmp_path):
    shutil.copytree(sized_once, tmp_path, dirs_exist_ok=True)
    tree = read_sealed(tmp_path / CHOICES_FILE)
    for decision in tree["decisions"]:
        del decision["declaration"]["confirmatory_claims_about_scale"]
        decision["digest"] = digest_of(decision["declaration"])
    (tmp_path / CHOICES_FILE).write_text(json.dumps(tree | {SEAL: digest_of(tree)}))
    plan = planned(sized(), Shelf(tmp_path))
    assert plan.blocked is None
    assert plan.looks


def test_what_a_look_of_an_earlier_version_gave_up_stays_settled(folder):
    """Such a study said `futility: true`."""
    tree = read_sealed(folder / CHOICES_FILE)
    (decision,) = tree["decisions"]
    decision["declaration"]["futility"] = True
    decision["digest"] = digest_of(decision["declaration"])
    (claim,) = decision["decided"]["claims"].values()
    claim["is_settled"] = True
    claim["verdict"] |= {"outcome": "undecided", "reason": "futile", "facts": {"pairs": 3, "last": 5}}
    (folder / CHOICES_FILE).write_text(json.dumps(tree | {SEAL: digest_of(tree)}))
    plan = planned(study_with(), Shelf(folder))
    assert (plan.blocked, len(plan.looks)) == (None, 1)
    (verdict,) = findings_of(study_with(), Shelf(folder)).verdicts
    assert (verdict.outcome, verdict.reason, verdict.look.is_settled) == ("undecided", "futile", True)


def test_words_of_a_claim_may_change(folder):
    plan = planned(study_with(hypotheses=[hypothesis(claim="In other words.")]), Shelf(folder))
    assert plan.blocked is None
    assert len(plan.looks) == 1


def test_a_damaged_file_starts_nothing(folder):
    (folder / CHOICES_FILE).write_text("{}")
    plan = planned(study_with(), Shelf(folder), facts=facts_of(study_with()))
    assert plan.blocked
    assert plan.looks == ()


def test_a_stored_look_with_another_value_and_a_seal_that_fits_ends_in_no_traceback(folder):
    """Whatever value it is: the file is said to be damaged, or it is believed and can be shown."""
    study, file = study_with(), folder / CHOICES_FILE
    whole = read_sealed(file)
    for number in range(60):
        tree = json.loads(json.dumps(whole))
        _change_one(tree["decisions"][0]["decided"], random.Random(number))
        file.write_text(json.dumps(tree | {SEAL: digest_of(tree)}))
        study_status(study, folder)
        article_of(findings_of(study, Shelf(folder)), "en", figures=())


def _change_one(tree, draw):
    """Somewhere inside."""
    key = draw.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
    if isinstance(tree[key], dict | list) and tree[key] and draw.random() < 0.9:
        _change_one(tree[key], draw)
    else:
        tree[key] = draw.choice([None, -1, 0, 7, 2.5, "word", [], {}, True, [1, "a"], {"a": [1]}])


def test_a_study_without_looks_keeps_its_digest_and_needs_all_of_its_seeds(tmp_path):
    plain = study_with(looks=[])
    assert study_digest(plain) != study_digest(study_with())
    assert "looks" not in json.dumps(plain.model_dump(exclude_defaults=True))
    plan = planned(plain, store_study(plain, tmp_path / "runs", losses))
    assert plan.looks == ()
    assert plan.blocked is None
    assert {run.need for run in plan.final} == {"now"}
