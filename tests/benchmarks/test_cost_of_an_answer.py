"""The simulation behind `make bench`: it starts from the stored spread, is fair to both sides, and notices a fault."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from oelm.analysis.many_studies import Claim
from oelm.analysis.spending import WITHOUT_LOOKS
from oelm.study.claims.kinds import Bounds

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from cost_of_an_answer import (  # noqa: E402 - a script, not a package
    FINDINGS,
    SEEDS,
    WAYS,
    WHOLE,
    Finding,
    Simulation,
    Way,
    cheapest,
    highest_error,
    stored_findings,
)

STUDIES = 1500
LOOKS = Way(looks=(4, 6, 8))


@pytest.fixture(scope="module")
def finding() -> Finding:
    """Three frozen arms against a baseline; what a seed does to all of them is larger than what it does to one."""
    return Finding(
        name="made up",
        claims=(Claim(Bounds(None, 0.0)), Claim(Bounds(None, 0.05)), Claim(Bounds(-0.05, 0.05))),
        treatments=np.array([1, 2, 3]),
        controls=np.array([0, 0, 0]),
        effects=np.array([0.0, -0.03, 0.02, 0.0]),
        covariance=0.02**2 * np.ones((4, 4)) + 0.01**2 * np.eye(4),
        final_flops=np.array([3.0, 2.0, 2.0, 2.0]),
        tuning_flops=np.array([1.5, 1.0, 1.0, 1.0]),
        octaves=np.arange(4.0),
        tuning_seeds=2,
        compares_losses=True,
    )


def test_a_fault_in_the_bounds_turns_the_simulation_red(finding):
    assert Simulation(finding, STUDIES, 16).errors(LOOKS).of_seeds <= highest_error(STUDIES)
    faulty = Simulation(finding, STUDIES, 16, levels=lambda looks: (WITHOUT_LOOKS,) * len(looks))
    assert faulty.errors(LOOKS).of_seeds > highest_error(STUDIES)


def test_a_way_costs_what_its_runs_cost(finding):
    simulation = Simulation(finding, 100, 16)
    whole = simulation.scores("drawn", WHOLE)
    assert (whole.cost, whole.contradicted, whole.lost) == (pytest.approx(1.0), 0.0, 0.0)
    assert finding.whole_flops == 4.5 * 2 * 4 + 9 * SEEDS
    halving = Way(margin=100.0)  # which drops nothing, and chooses the same
    more = simulation.scores("drawn", halving)
    assert more.cost == pytest.approx(1 + 0.25 * 4.5 * 2 * 4 / finding.whole_flops)
    assert (more.contradicted, more.lost) == (0.0, 0.0)


def test_looks_never_cost_more_and_the_same_seed_gives_the_same_numbers(finding):
    one, other = (Simulation(finding, 200, 3) for _ in range(2))
    for truth in ("found", "drawn"):
        assert one.scores(truth, LOOKS) == other.scores(truth, LOOKS)
        assert one.scores(truth, LOOKS).cost < one.scores(truth, WHOLE).cost


def test_the_cheapest_way_keeps_to_the_limits(finding):
    simulation = Simulation(finding, 200, 3)
    points = {way: [simulation.scores(truth, way) for truth in ("found", "drawn")] for way in WAYS[:2]}
    way, cost = cheapest(points)
    assert way in (WHOLE, *points)
    assert cost <= 1.0
    assert cheapest({}) == (WHOLE, 1.0)


def test_simulated_differences_have_the_spread_of_the_stored_ones():
    names = set()
    for finding in stored_findings():
        names.add(finding.name)
        results = json.loads((FINDINGS / finding.name / "report" / "analysis_results.json").read_text(encoding="utf-8"))
        arms = list(results["arms"])
        assert len(arms) == len(finding.effects)
        checked = 0
        for verdict in (each for each in results["verdicts"] if each["difference"]):
            claim, of_look = verdict["hypothesis"], verdict["difference"]
            if not {claim["treatment"], claim["control"]} <= set(arms):
                continue  # at another size
            treatment, control = arms.index(claim["treatment"]), arms.index(claim["control"])
            assert (finding.treatments[checked], finding.controls[checked]) == (treatment, control)
            checked += 1
            if len(of_look["seeds"]) < len(results["arms"][claim["treatment"]]["losses"]):
                continue  # decided by a look, before its last seeds
            spread = finding.covariance
            variance = spread[treatment, treatment] + spread[control, control] - 2 * spread[treatment, control]
            assert np.sqrt(variance) == pytest.approx(of_look["standard_deviation"], rel=1e-6)
            assert finding.effects[treatment] - finding.effects[control] == pytest.approx(of_look["mean"], abs=1e-9)
        assert checked == len(finding.claims) > 0
    assert names >= {"tinystories_cpu", "tinystories_scale", "xnli_bert"}
