"""What a report, a status and a terminal say of a bench that is busy, old, damaged, or at odds with arithmetic."""

import json

import pytest
from example_studies import example_study, findings_from

from oelm.analysis.findings import Findings
from oelm.analysis.summary import findings_as_json, findings_of
from oelm.cli.studies import bench_lines
from oelm.execution.status import study_status
from oelm.show.article import visible_text
from oelm.show.content import article_of
from oelm.show.verdicts import as_text
from oelm.study.bench import stored_bench
from oelm.study.shelf import Shelf
from stored_runs import store_bench

BLOCKS = 12
SECONDS = {"trained": [0.1] * BLOCKS, "frozen_head_orthogonal": [0.08] * BLOCKS}
ASKED = [("frozen_head_orthogonal", "trained")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    findings_from(example_study(), path)
    return path


def said(folder) -> tuple[Findings, dict[str, str]]:
    findings = findings_of(example_study(), Shelf(folder))
    json.dumps(findings_as_json(findings), allow_nan=False)
    texts = {
        language: visible_text(article_of(findings, language, figures=())) + as_text(findings, language)
        for language in ("en", "zh")
    }
    return findings, texts


def time_verdict(findings: Findings):
    return next(verdict for verdict in findings.verdicts if verdict.hypothesis.kind == "faster")


def test_a_ratio_below_what_arithmetic_allows_is_called_implausible(folder):
    work = {"trained": {"products": 100.0, "optimizer": 10.0}, "frozen_head_orthogonal": {"products": 97.0}}
    work["frozen_head_orthogonal"]["optimizer"] = 9.0
    store_bench(folder, study=example_study(), baseline="trained", seconds=SECONDS, work=work)
    findings, texts = said(folder)
    assert time_verdict(findings).outcome == "supported"
    assert texts["en"].count("Implausible") == 3  # beside the verdict, twice written out, and in the section on speed
    assert "0.900 by arithmetic" in texts["en"]
    assert "不合理" in texts["zh"]
    lines = list(bench_lines(stored_bench(folder), ASKED))
    assert lines[0].startswith(
        "control, trained / trained: 1.0000 (95 % interval 1.0000 to 1.0000, 12 undisturbed blocks"
    )
    assert lines[1].startswith("step time, frozen_head_orthogonal / trained: 0.8000")
    assert lines[2].strip() == "implausible: no single component of the step allows less than 0.9000"
    store_bench(
        folder,
        study=example_study(),
        baseline="trained",
        seconds=SECONDS,
        work={arm: {"products": 1.0} for arm in SECONDS},
    )
    assert "Implausible" in said(folder)[1]["en"]  # identical arithmetic
    seconds = SECONDS | {"frozen_head_orthogonal": [0.095] * BLOCKS}
    store_bench(folder, study=example_study(), baseline="trained", seconds=seconds, work=work)
    assert "Implausible" not in said(folder)[1]["en"]


def test_a_busy_machine_is_said_and_gives_no_ratio(folder):
    records = [{"seconds": 1.0, "disturbed": ["others"] * (number < 5)} for number in range(BLOCKS)]
    store_bench(folder, study=example_study(), baseline="trained", seconds=SECONDS, blocks=records)
    findings, texts = said(folder)
    assert time_verdict(findings).outcome == "undecided"
    assert "The machine was busy: 7 of 12 blocks were undisturbed" in texts["en"]
    assert "机器繁忙" in texts["zh"]
    assert all(arm.ratio is None for arm in findings.arms.values())
    (line,) = bench_lines(stored_bench(folder), ASKED)
    assert line.startswith("undecided: machine busy: 7 of 12 blocks were undisturbed")


def test_a_damaged_bench_is_named_and_gives_no_number(folder):
    store_bench(folder, study=example_study(), baseline="trained", seconds=SECONDS)
    file = folder / "bench.json"
    file.write_text(file.read_text().replace("0.08", "0.07", 1))
    findings, texts = said(folder)
    assert time_verdict(findings).ratio is None
    for text in texts.values():
        assert f"{file}: damaged: changed since it was sealed" in text
        assert "0.080" not in text
    _, lines = study_status(example_study(), folder)
    assert f"{file}: damaged: changed since it was sealed; measure again with oelm bench example" in lines


def test_the_control_is_shown_beside_the_ratios(folder):
    store_bench(folder, study=example_study(), baseline="trained", seconds=SECONDS, twin=[0.101] * 6 + [0.099] * 6)
    _, texts = said(folder)
    assert "As a control, trained was timed against itself: 1.000" in texts["en"]
    assert "作为对照" in texts["zh"]


def test_a_bench_of_another_config_is_said_in_both_languages_and_gives_no_ratio(folder):
    base = example_study().base
    before = example_study(base=base | {"model": base["model"] | {"d_model": 16}})
    store_bench(folder, study=before, baseline="trained", seconds=SECONDS)
    findings, texts = said(folder)
    assert time_verdict(findings).outcome == "undecided"
    assert all(arm.ratio is None for arm in findings.arms.values())
    assert "The bench measured another config: model.d_model 16, now 32; measure again with oelm bench" in texts["en"]
    assert "基准测量属于另一配置：model.d_model 16" in texts["zh"]
    assert "timed against itself" not in texts["en"]
    alone = example_study(arms=example_study().model_dump()["arms"] | {"trained": {"set": {"batch_size": 8}}})
    store_bench(folder, study=alone, baseline="trained", seconds=SECONDS)
    assert "training.batch_size 8, now 4 (trained)" in said(folder)[1]["en"]


def test_a_bench_of_arms_that_the_study_no_longer_has_says_nothing(folder):
    store_bench(folder, study=example_study(), baseline="gone", seconds={"gone": [0.1] * BLOCKS})
    findings, _ = said(folder)
    assert time_verdict(findings).reason == "no_bench"
