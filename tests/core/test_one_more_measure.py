"""One more entry of the table is one more measure: a study of stored runs goes by it from declaration to report."""

import csv
import io
import json
import math
import shutil

import pytest

from oelm.analysis.summary import findings_as_json, findings_of
from oelm.core.measures import ACCURACY, LOSS, MEASURES, PERCENT, POINTS, Measure, share
from oelm.execution.status import study_status
from oelm.machine.errors import UserError
from oelm.show import tables
from oelm.show.figures import gallery
from oelm.show.figures.gallery import figures_of
from oelm.show.report import write_report
from oelm.study.declaration import study_digest
from stored_runs import FREEZING, sealed_again, small_classification, small_study, store_study

# Shares where less is better, of encoders, with a curve; and a quantity that is compared by its ratio, without one.
CALIBRATION = Measure(
    key="calibration_error",
    name=("calibration error", "校准误差"),
    kinds=("encoder",),
    scale=POINTS,
    better="lower",
    value_of=share("calibration_error"),
    shown_key="calibration_error",
    documentation=("that classify", "paired t", "unknown"),
    floor=lambda result, labels: None,
    floor_names=(("a guess", "猜测"), ("", "")),
    record_key="calibration_error",
)
DENSITY = Measure(
    key="bits_per_byte",
    name=("number of bits per byte", "每字节比特数"),
    kinds=("gpt",),
    scale=PERCENT,
    better="lower",
    value_of=lambda result: math.log(result["bits_per_byte"]) if result.get("bits_per_byte") else None,
    shown_key="bits_per_byte",
    documentation=("that predict text", "paired t, of the logarithms", "unknown"),
    floor=lambda result, labels: None,
    floor_names=(("a table", "表"), ("", "")),
)
# How a run's loss and what is measured with it go together; the effect below is of the loss.
ALSO = {
    "calibration_error": lambda loss: {"calibration_error": min(1.0, loss / 4)},
    "bits_per_byte": lambda loss: {"bits_per_byte": math.exp(loss)},
}
OTHER_WORDS = ("perplexity", "Perplexity", "困惑度", "accuracy", "准确率")


def study_by(measure: Measure, **changes):
    make, control, treatment = {
        "encoder": (small_classification, "fine_tuned", "frozen_head_orthogonal"),
        "gpt": (small_study, "trained", "frozen_head_orthogonal"),
    }[measure.kinds[0]]
    shared = {"measure": measure.key, "treatment": treatment, "control": control, "varies": FREEZING}
    claims = [
        {"name": "cost", "claim": "It costs little", "kind": "not_worse", measure.scale.margin_key: 5},
        {"name": "gain", "claim": "It is a gain", "kind": "better"},
        {"name": "same", "claim": "Neither", "kind": "equivalent", measure.scale.margin_key: 5, "confirmatory": False},
    ]
    tree = {"hypotheses": [claim | shared for claim in claims], "arms": [control, treatment], "seeds": [0, 1, 2, 3]}
    return make(**tree | changes)


def loss(arm, seed, stage, point):
    """A hundredth of a nat, or of a share of 4, worse where it is frozen."""
    wobble = [0.0, 0.001, -0.001, 0.002][seed % 4]
    return 0.4 + 0.02 * seed + (0.04 + wobble if arm.startswith("frozen") else 0.0)


@pytest.fixture(scope="module", params=[CALIBRATION, DENSITY], ids=lambda measure: measure.key)
def measure(request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MEASURES, request.param.key, request.param)
        yield request.param


@pytest.fixture(scope="module")
def runs(measure, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return store_study(study_by(measure), folder, loss, also=ALSO[measure.key])


@pytest.fixture(scope="module")
def findings(measure, runs):
    return findings_of(study_by(measure), runs)


def figures_by(measure):
    """Those that the measure has a say in."""
    names = (*vars(measure.figures).values(), "validation_loss", "differences", "decomposition")
    return {name: draw for name, draw in figures_of(measure).items() if name in names}


@pytest.fixture(scope="module")
def report(measure, findings, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gallery, "figures_of", figures_by)
        return write_report(findings, tmp_path_factory.mktemp("report"), formats=["md"])


def test_a_study_declares_it_and_nothing_beside_it(measure):
    study = study_by(measure)
    assert study.measure is measure
    assert [claim.margin for claim in study.hypotheses] == [5, None, 5]
    usual = next(each for each in MEASURES.values() if measure.kinds[0] in each.kinds)
    assert study_digest(study) != study_digest(study_by(usual))
    claims = [claim.model_dump(exclude_none=True) for claim in study.hypotheses]
    for changes, problem in (
        ({"measure": usual.key}, "a study has one measure"),
        ({measure.scale.margin_key: None}, f"equivalent needs {measure.scale.margin_key}"),
        ({"kind": "faster", measure.scale.margin_key: None}, "measure is for not_worse, equivalent, better"),
    ):
        with pytest.raises(UserError, match=problem):
            study_by(measure, hypotheses=[*claims[:2], claims[2] | changes])


def test_verdicts_go_by_it(measure, findings):
    found = {verdict.hypothesis.name: verdict for verdict in findings.verdicts}
    assert {name: verdict.outcome for name, verdict in found.items()} == {
        "cost": "supported",
        "gain": "refuted",
        "same": "supported",
    }
    effect = 1.0 if measure is CALIBRATION else 100 * math.expm1(0.04)
    for verdict in found.values():
        assert verdict.facts["difference"] == pytest.approx(effect, abs=0.1)
        assert verdict.p is not None
    assert findings.target_perplexity is None


def test_a_run_that_did_not_record_it_is_no_result(measure, tmp_path):
    study = study_by(measure)
    shelf = store_study(study, tmp_path, loss, also=lambda _: {})
    findings = findings_of(study, shelf)
    assert {arm.arm: arm.states for arm in findings.arms.values()} == {
        arm: {"unmeasured": [0, 1, 2, 3]} for arm in study.arms
    }
    lack = f"experiment_result.json has no {measure.shown_key}"
    assert {run["error"] for run in findings_as_json(findings)["unfinished"]} == {lack}
    report = write_report(findings, tmp_path / "report", formats=["md"])
    assert f"finished, but {lack}" in report.articles["en.md"].read_text(encoding="utf-8")
    assert f"experiment_result.json 中没有 {measure.shown_key}" in report.articles["zh.md"].read_text(encoding="utf-8")
    assert sum(lack in line for line in study_status(study, shelf.folder)[1]) == 8


def test_two_results_of_one_computation_that_differ_in_it_are_unlike(measure, runs, tmp_path):
    shutil.copytree(runs.folder, tmp_path / "runs")
    first = sorted((tmp_path / "runs").glob("*-s0-*"))[0]
    other = shutil.copytree(first, first.with_name("copy"))
    result = json.loads((other / "experiment_result.json").read_text())
    result[measure.shown_key] /= 2
    (other / "experiment_result.json").write_text(json.dumps(result))
    sealed_again(other)
    lines = study_status(study_by(measure), tmp_path / "runs")[1]
    assert sum("report different numbers" in line and measure.shown_key in line for line in lines) == 1


def test_a_target_is_a_perplexity():
    assert [key for key, each in MEASURES.items() if each.has_target] == [LOSS.key]


def test_it_is_stored_under_its_own_names(measure, findings, report):
    tree = json.loads(report.tables["analysis_results.json"].read_text(encoding="utf-8"))
    arm = tree["arms"]["frozen_head_orthogonal"]
    assert arm[f"{measure.key}_mean"] == pytest.approx(findings.arms["frozen_head_orthogonal"].quality.mean)
    assert len(arm[f"{measure.key}_values"]) == 4
    assert (arm[f"{measure.key}_curve"] is None) == (measure.record_key is None)
    verdict = tree["verdicts"][0]
    assert verdict["reason"] == f"{measure.key}_shown"
    assert {measure.scale.key, f"margin_{measure.scale.key}"} <= verdict["facts"].keys()
    assert verdict[measure.scale.stored_margin] == pytest.approx(measure.scale.margin(5))


def test_the_tables_show_it(measure, findings):
    table = tables.quality_table(findings, "en")
    assert measure.name[0] in table.header
    rows = list(csv.DictReader(io.StringIO(tables.comparison_csv(findings))))
    assert float(rows[1][f"difference_{measure.key}"]) > 0  # more of what should be less
    assert float(rows[1][f"{measure.key}_mean"]) > float(rows[0][f"{measure.key}_mean"])
    for row in csv.DictReader(io.StringIO(tables.runs_csv(findings))):
        assert float(row[measure.key]) > 0


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_report_speaks_of_it_and_of_no_other_measure(measure, findings, report, language):
    text = report.articles[f"{language}.md"].read_text(encoding="utf-8")
    name = measure.name[("en", "zh").index(language)]
    assert text.count(name) > 10
    assert not [word for word in OTHER_WORDS if word in text]
    margin = "5 points" if measure is CALIBRATION else "5 %"
    assert {"en": f"{name} at most {margin} above that of", "zh": f"的{name}最多比"}[language] in text
    unit = {"en": "percentage points", "zh": "百分点"} if measure is CALIBRATION else {"en": "per cent", "zh": "百分比"}
    assert unit[language] in text
    assert {"en": "Left of 0 is better", "zh": "小于 0 表示更好"}[language] in text


def test_its_figures_are_drawn(measure, report):
    names = set(figures_by(measure)) - ({measure.figures.curve} if measure.record_key is None else set())
    assert {f"final_{measure.key}", f"{measure.key}_by_parameters", "validation_loss", "differences"} <= names
    assert not set(figures_of(measure)) & {*vars(LOSS.figures).values(), "target"}
    for language in ("en", "zh"):
        assert {f"{name}.{language}.svg" for name in names} <= report.figures.keys()


def test_status_and_the_end_of_a_run_name_it(measure, tmp_path):
    usual = LOSS if "gpt" in measure.kinds else ACCURACY  # of another study, though its runs store this one too
    for study in (study_by(measure), study_by(usual)):
        lines = study_status(
            study, store_study(study, tmp_path / study.measure.key, loss, also=ALSO[measure.key]).folder
        )[1]
        assert sum(f", {study.measure.name[0]} " in line for line in lines) == 8
