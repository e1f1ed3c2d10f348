"""Looks as a controller takes them: what is decided runs no further, and whoever dies in between changes nothing."""

import json

import numpy as np
import pytest

from instant_slots import InstantSlots, Killed, run_study
from oelm.analysis.summary import findings_as_json, findings_of
from oelm.execution.looking import look_lines
from oelm.execution.status import study_status
from oelm.machine.errors import UserError
from oelm.study.decisions import CHOICES_FILE, read_decisions
from oelm.study.plan import planned
from oelm.study.shelf import Shelf
from stored_runs import facts_of, hypothesis, small_study

ARMS = ["trained", "frozen_head_orthogonal", "frozen_normal"]
CLEAR, OPEN = "frozen_head_orthogonal", "frozen_normal"  # the one is decided at once, the other never


def losses(arm, seed, stage="final", point=()):
    effect = {OPEN: 0.0488}.get(arm, 0.0)  # on its margin
    return 2 + effect + float(np.random.default_rng([len(arm), seed]).normal(0, 0.004))


def study_with_looks(**changes):
    claims = [hypothesis(name="clear"), hypothesis(name="open", treatment=OPEN, varies=["moves", "scale"])]
    keys = {"arms": ARMS, "seeds": [7, 3, 5, 1, 0, 2, 4, 6], "looks": [4, 6, 8], "hypotheses": claims}
    return small_study(**keys | changes)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder, study = tmp_path_factory.mktemp("looks"), study_with_looks()
    slots = InstantSlots(folder, losses)
    plan, lines = run_study(study, slots)
    return study, folder, slots.started, plan, lines


def decided(folder) -> list:
    return [each.decided for each in read_decisions(folder)]


def test_an_arm_whose_claims_are_decided_runs_no_further_seeds_and_the_others_do(done):
    _, _, started, plan, _ = done
    assert [title for title in started if title.startswith(CLEAR)] == [f"{CLEAR} s{seed}" for seed in (7, 3, 5, 1)]
    assert (
        sum(title.startswith(OPEN) for title in started) == sum(title.startswith("trained") for title in started) == 8
    )
    assert {run.title for run in plan.saved} == {f"{CLEAR} s{seed}" for seed in (0, 2, 4, 6)}
    assert plan.is_done


def test_every_look_is_stored_before_the_first_run_beyond_it(done):
    study, folder, _, _, lines = done
    looks = read_decisions(folder)
    assert [(each.subject, each.final_runs_then, len(each.runs)) for each in looks] == [
        ("1", 0, 12), ("2", 0, 12), ("3", 0, 16),
    ]  # fmt: skip
    assert [each.decided["seeds"] for each in looks] == [study.seeds[:count] for count in study.looks]
    assert "look 1 of 3: clear: supported" in lines
    assert "look 1 of 3: open: undecided, still open" in lines


def test_the_verdict_and_its_interval_are_those_of_the_look_that_decided(done):
    study, folder, _, _, _ = done
    clear, unclear = findings_of(study, Shelf(folder)).verdicts
    assert (clear.outcome, clear.look.number, clear.difference.seeds) == ("supported", 1, [1, 3, 5, 7])
    assert (unclear.outcome, unclear.look.number, len(unclear.difference.seeds)) == ("undecided", 3, 8)


@pytest.mark.parametrize("lives", [11, 12])
def test_a_controller_killed_between_looks_decides_the_same(done, tmp_path, lives):
    study, folder, _, _, _ = done
    with pytest.raises(Killed):
        run_study(study, InstantSlots(tmp_path, losses, lives=lives))
    run_study(study, InstantSlots(tmp_path, losses, most=5))
    assert decided(tmp_path) == decided(folder)


def test_status_says_what_is_not_needed_what_was_decided_and_what_comes_next(done, tmp_path):
    study, folder, _, plan, _ = done
    _, lines = study_status(study, folder)
    assert f"{CLEAR} s0  not needed after look 1 of 3" in lines
    assert "look 1 of 3, at 4 seeds: clear supported" in lines
    assert "all looks were taken; undecided: open" in lines
    assert lines[-1] == "small: final 20/20 finished, 4 not needed"
    with pytest.raises(Killed):
        run_study(study, InstantSlots(tmp_path, losses, lives=13))
    plan, lines = study_status(study, tmp_path)
    assert f"{OPEN} s4              waiting for look 2 of 3".split() in [line.split() for line in lines]
    assert look_lines(plan)[-1] == "next: look 2 of 3, at 6 seeds, needs 3 runs, at most 4 runs after it; open: open"


def test_status_says_when_a_look_is_due_and_when_nothing_follows(done, tmp_path):
    study = done[0]
    with pytest.raises(Killed):
        run_study(study, InstantSlots(tmp_path, losses, lives=18))
    plan, _ = study_status(study, tmp_path)
    assert look_lines(plan)[-1] == "next: look 3 of 3, at 8 seeds, needs 2 runs, none after it; open: open"
    (tmp_path / CHOICES_FILE).unlink()
    plan, _ = study_status(study, tmp_path)
    due = "next: look 1 of 3, at 4 seeds, has all its runs: `oelm run` takes it, at most 12 runs after it; open: "
    assert [line.startswith(due) for line in look_lines(plan)] == [True]


def test_later_seeds_are_shown_and_decide_nothing(done, tmp_path):
    """Of a study whose runs were all there before it was looked at."""
    study, folder, _, _, _ = done
    run_study(study_with_looks(looks=[]), InstantSlots(tmp_path, losses, most=99))
    run_study(study, InstantSlots(tmp_path, losses))
    then, now = ([each["claims"] for each in decided(place)] for place in (folder, tmp_path))
    assert now == then
    found = findings_of(study, Shelf(tmp_path))
    assert len(found.arms[CLEAR].losses) == 8
    assert found.verdicts[0].difference.seeds == [1, 3, 5, 7]
    assert [each.final_runs_then for each in read_decisions(tmp_path)] == [12, 4, 0]
    assert "look_stored_late" in dict(found.notes)


def test_a_study_that_is_only_read_says_what_its_runs_say_and_stores_nothing(done, tmp_path):
    study, folder, _, _, _ = done
    run_study(study_with_looks(looks=[]), InstantSlots(tmp_path, losses, most=99))
    read, stored = (findings_of(study, Shelf(place)) for place in (tmp_path, folder))
    assert not (tmp_path / "choices.json").exists()
    assert [each.outcome for each in read.verdicts] == [each.outcome for each in stored.verdicts]
    assert [look.made for look in read.looks] == [None, None, None]
    assert json.dumps(findings_as_json(read))


def test_an_arm_without_a_claim_that_seeds_decide_runs_them_all(tmp_path):
    claims = [hypothesis(name="clear"), hypothesis("fewer_parameters", treatment=OPEN)]
    slots = InstantSlots(tmp_path, losses)
    run_study(study_with_looks(hypotheses=claims), slots)
    counts = {arm: sum(title.startswith(f"{arm} ") for title in slots.started) for arm in ARMS}
    assert counts == {"trained": 4, CLEAR: 4, OPEN: 8}


def test_a_claim_with_a_diverged_run_asks_for_no_further_seeds(tmp_path):
    def diverging(arm, seed, stage, point):
        return float("inf") if (arm, seed) == (OPEN, 3) else losses(arm, seed)

    slots = InstantSlots(tmp_path, diverging)
    run_study(study_with_looks(), slots)
    assert len(slots.started) == 12
    verdict = findings_of(study_with_looks(), Shelf(tmp_path)).verdicts[1]
    assert (verdict.outcome, verdict.reason, verdict.look.number) == ("undecided", "diverged", 1)


def test_looks_need_the_libraries_of_a_report_before_anything_runs(tmp_path, monkeypatch):
    def missing(name):
        raise UserError("the analysis of a study needs scipy")

    monkeypatch.setattr("oelm.execution.looking.importlib.import_module", missing)
    slots = InstantSlots(tmp_path, losses)
    with pytest.raises(UserError, match="needs scipy"):
        run_study(study_with_looks(), slots)
    assert not slots.started


def test_a_look_does_not_wait_for_seeds_that_only_a_claim_about_scale_needs(tmp_path):
    """Such a claim needs every seed at every size; the look at the other claim about the same arms is after three."""
    claims = [
        hypothesis("grows", over="width", name="scale"),
        hypothesis(name="cost"),
        hypothesis(name="more", treatment=OPEN),
    ]
    arms = {"trained": {}, CLEAR: {}, OPEN: {"sizes": ["width32"]}}
    keys = {"seeds": [0, 1, 2, 3], "looks": [3, 4], "sizes": {"width": [16, 32, 48]}, "main_size": "width32"}
    study = small_study(arms=arms, hypotheses=claims, **keys)

    def loss(arm, seed, stage, point):
        return losses(arm.partition("+")[0], seed)

    with pytest.raises(Killed):  # three seeds of seven arms at their sizes, and the fourth of the smallest size
        run_study(study, InstantSlots(tmp_path, loss, lives=23))
    (look,) = read_decisions(tmp_path)
    assert look.decided["seeds"] == [0, 1, 2]
    assert len(look.runs) == 9
    plan, _ = run_study(study, InstantSlots(tmp_path, loss))
    assert plan.is_done
    assert all(run.has_ended for run in plan.final if run.arm.startswith(("trained", CLEAR)))


def test_the_runs_that_a_look_needs_are_those_of_its_seeds(tmp_path):
    """Also where a claim about scale has all seeds of the same arms run."""
    claims = [hypothesis("grows", over="width", name="scale"), hypothesis(name="cost")]
    keys = {"seeds": [0, 1, 2, 3], "looks": [3, 4], "sizes": {"width": [16, 32, 48]}, "main_size": "width32"}
    study = small_study(arms=ARMS[:2], hypotheses=claims, **keys)
    with pytest.raises(Killed):
        run_study(study, InstantSlots(tmp_path, lambda arm, *_: losses(arm.partition("+")[0], 0), lives=10))
    plan = planned(study, Shelf(tmp_path), facts=facts_of(study))
    (line,) = look_lines(plan)
    assert line == "next: look 1 of 2, at 3 seeds, needs 2 runs, at most 2 runs after it; open: cost"
