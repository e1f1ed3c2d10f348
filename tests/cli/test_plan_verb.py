"""`oelm plan`: one table for claims, one for costs, or one object; and wrong input is one line."""

import json
import sys

import pytest
import yaml

from oelm.cli import main
from stored_runs import hypothesis, small_study, store_study

MODEL = {"seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4, "vocabulary": 64}
TREE = {
    "question": "Does it hold?",
    "base": {"model": MODEL, "training": {"steps": 40, "batch_size": 4}, "data": "data/small"},
    "arms": ["trained", "frozen_head_orthogonal"],
    "seeds": list(range(8)),
    "hypotheses": [hypothesis()],
}


@pytest.fixture
def answer(tmp_path, monkeypatch, capsys):
    """The exit code and what was printed, where the study `small` is."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(TREE))

    def answered(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["oelm", "plan", "small.yaml", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return answered


def test_before_any_run_differences_are_in_units_of_the_spread(answer):
    code, out, _ = answer()
    assert code == 0
    assert "spread unknown" in out
    assert " sd " in out
    assert "deviation borne" in out


def test_with_a_spread_it_says_how_many_seeds_and_what_they_cost(answer):
    code, out, _ = answer("--deviation", "2")
    assert code == 0
    assert "standard deviation of a paired difference: 2 %, as given" in out
    row = next(line for line in out.splitlines() if line.startswith("not_worse"))
    assert "0.0500" in row
    assert "looks: after 4, 6, 8 seeds" in out.splitlines()


def test_spread_comes_from_finished_runs(answer, tmp_path):
    study = small_study(**{key: value for key, value in TREE.items() if key != "question"})
    store_study(study, tmp_path / "runs" / "small", lambda arm, seed, *_: 2.0 + 0.01 * seed * (arm != "trained"))
    for words in ((), ("--like", "small.yaml"), ("--like", "small.yaml", "--runs", "runs/small")):
        code, out, _ = answer(*words)
        assert code == 0
        assert "pooled over 1 pair of arms in the runs of small, 7 degrees of freedom" in out
        assert "for planning only" in out


def test_json_is_one_object(answer):
    tree = json.loads(answer("--deviation", "2", "--json")[1])
    assert {"study", "spread", "looks", "claims", "costs"} <= tree.keys()
    assert 3 <= tree["claims"][0]["seeds_needed"] < 8
    assert tree["looks"] == {"seeds": [4, 6, 8], "is_declared": True}


def test_a_pace_gives_the_time_before_anything_was_run(answer):
    assert "time unknown: no run has finished; --pace X" in answer()[1]
    tree = json.loads(answer("--pace", "160", "--json")[1])
    # 40 updates of 4 x 16 tokens for each of 8 seeds; the frozen arm has less arithmetic.
    (every_seed, _), seconds = tree["costs"], 8 * 40 * 4 * 16 / 160
    assert seconds * 1.5 < every_seed["seconds"] < 2 * seconds
    assert "time unknown" not in answer("--pace", "160")[1]


def test_claims_about_scale_are_in_the_table_with_what_they_rest_on(answer, tmp_path):
    claims = [hypothesis("grows"), hypothesis("contrast", size="steps40", against="steps10")]
    sized = TREE | {"sizes": {"steps": [10, 20, 40]}, "hypotheses": claims}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(sized))
    for words in ((), ("--deviation", "2")):
        code, out, _ = answer(*words)
        assert code == 0
        rows = [line.split()[0] for line in out.splitlines() if line.startswith(("grows ", "contrast "))]
        assert rows == ["grows", "contrast"]
        assert "grows: with every doubling of tokens; 3 sizes, 1 degree of freedom" in out
        assert "sqrt(2)" in out
    (tmp_path / "small.yaml").write_text(
        yaml.safe_dump(sized | {"sizes": {"steps": [20, 40]}, "hypotheses": claims[:1]})
    )
    assert "grows: no slope over 2 sizes; a slope needs 3 that differ in it" in answer("--deviation", "2")[1]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--deviation", "0"], "--deviation 0: must be a number above 0"),
        (["--deviation", "nan"], "--deviation nan: must be a number above 0"),
        (["--pace", "inf"], "--pace inf: must be a number above 0"),
        (["--difference", "-1"], "--difference -1: must be a number above 0"),
        (["--deviation", "1", "--like", "small.yaml"], "--like: give either --like or --deviation"),
        (["--deviation", "1", "--runs", "here"], "--runs: says where the spread comes from"),
        (["--like", "small.yaml"], "--like small: runs/small has fewer than two finished pairs"),
        (["--runs", "nowhere"], "--runs nowhere: no such folder"),
    ],
)
def test_wrong_input_is_one_line(answer, words, line):
    code, out, err = answer(*words)
    assert (code, out) == (2, "")
    (only,) = err.splitlines()
    assert line in only
