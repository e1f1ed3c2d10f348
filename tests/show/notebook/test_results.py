"""Results for notebooks: the numbers of a report, from a study, a folder, an archive and a run; every text escaped."""

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="pip install 'oelm[notebook]'")

import oelm
from oelm.analysis.summary import findings_as_json
from oelm.execution.status import find_run
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.show.notebook.results import Results, RunView, StudyView, VerdictView
from oelm.study.archiving import archive
from oelm.study.declaration import Study
from oelm.study.given_results import GivenResults, refuse_runs_of_others
from oelm.study.reading import study_of
from oelm.study.shelf import read_stored
from sized_studies import losses_with_slope, sized_study
from stored_runs import VOCABULARY, probe_curve, small_probes, store_study

REPOSITORY = Path(__file__).parents[3]
NOTEBOOK = REPOSITORY / "docs" / "notebooks" / "results.ipynb"
NASTY = "<script>alert(1)</script><img src=x onerror=y> & \"quoted\" 'single' \x1b[31m"


def small_study(text: str = "Can it?") -> Study:
    claim = {
        "name": "cost", "claim": text, "kind": "not_worse", "treatment": "frozen_orthogonal", "control": "trained",
        "margin_percent": 5.0, "varies": ["start", "scale", "moves"],
    }  # fmt: skip
    tree = {
        "name": "walk",
        "question": text,
        "base": {
            "preset": "tiny",
            "data": "data/invented",
            "model": {"vocabulary": VOCABULARY, "seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 2},
            "training": {"steps": 60, "batch_size": 4},
        },
        "arms": {"trained": {"label": text}, "frozen_orthogonal": {"label": text}},
        "seeds": [0, 1, 2],
        "hypotheses": [claim],
    }
    return study_of(tree, name="walk.yaml")


def loss(arm, seed, stage, point):
    return 2.0 + 0.1 * seed + (0.01 + 0.001 * seed if arm != "trained" else 0.0)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs") / "walk"
    place.mkdir()
    store_study(small_study(), place, loss)
    return place


def results_of(folder: Path, study: Study) -> Results:
    return Results(GivenResults(study.name, folder, study), "en")


def test_frames_hold_what_a_report_holds(stored):
    found = results_of(stored, small_study())
    assert list(found.runs.state.unique()) == ["finished"]
    assert len(found.runs) == 6
    for row in found.runs.itertuples():
        assert row.val_loss == pytest.approx(loss(row.arm, row.seed, "final", ()))
    said = findings_as_json(found.findings)["verdicts"][0]
    verdict = found.verdicts.iloc[0]
    assert (verdict.claim, verdict.outcome, verdict.p) == ("cost", said["outcome"], said["p"])
    assert verdict.low < verdict.difference < verdict.high
    assert verdict.pairs == 3
    assert verdict.reservations.split(", ") == [each["code"] for each in said["reservations"]] == ["not_registered"]


def test_runs_and_curves_name_a_run_alike(stored):
    found = results_of(stored, small_study())
    assert set(found.curves.run) == set(found.runs.run)
    last = found.curves.dropna(subset=["val_loss"]).groupby("run").val_loss.last()
    assert last.to_dict() == pytest.approx(found.runs.set_index("run").val_loss.to_dict())


def test_an_archive_gives_the_frames_of_its_folder(stored, tmp_path):
    archive("walk", stored, tmp_path / "walk.zip")
    assert oelm.results(tmp_path / "walk.zip").runs.equals(oelm.results(stored).runs)


def test_one_run_has_runs_and_curves_and_no_verdicts(stored):
    run = next(path for path in stored.iterdir() if path.is_dir())
    found = oelm.results(run)
    assert list(found.runs.run) == [run.name]
    assert len(found.curves) > 1
    with pytest.raises(UserError, match=r"study=.STUDY\.yaml."):
        found.verdicts  # noqa: B018
    assert run.name in found._repr_html_()


def test_a_run_has_the_names_that_the_verb_logs_takes(stored):
    found, run = results_of(stored, small_study()), next(stored.glob("trained-s1-*"))
    for name in ("trained-s1", run.name, f"{stored.name}/trained-s1", str(run)):
        assert find_run(name, stored.parent).path == run
        assert run.name in found.run(name)._repr_html_()
    with pytest.raises(UserError, match="has several runs 'trained'; could be trained-s0-"):
        found.run("trained")


def test_arms_are_called_as_their_study_calls_them(tmp_path):
    """Whatever a run itself is labelled: one of another size, or with settings of its own, is a `custom` arm."""
    study = sized_study(sizes={"width": [16, 32]}, hypotheses=[], seeds=[0])
    store_study(study, tmp_path / study.name, losses_with_slope())
    found = results_of(tmp_path / study.name, study)
    named = {"trained+width16", "trained+width32", "frozen_head_orthogonal+width16", "frozen_head_orthogonal+width32"}
    assert set(found.runs.arm) == set(found.curves.arm) == named == set(found.findings.at_all_sizes)
    assert "frozen_head_orthogonal+width16" in found.run(found.runs.run[0])._repr_html_()


def test_numbers_by_difficulty_are_columns(tmp_path):
    study = small_probes(seeds=[0])
    curve = probe_curve(lambda *_: 100)
    store_study(study, tmp_path / study.name, lambda *_: 1.0, measured=curve)
    found = results_of(tmp_path / study.name, study)
    assert set(found.runs["accuracy_by_difficulty/4"]) == {1.0}
    assert "accuracy_by_difficulty/4" in found.curves


def test_numbers_that_nobody_has_yet_are_numbers_all_the_same(tmp_path):
    folder = tmp_path / "walk"
    folder.mkdir()
    store_study(small_study(), folder, lambda arm, seed, *_: 2.0 if arm == "trained" else None)
    found = results_of(folder, small_study())
    assert [str(found.verdicts[name].dtype) for name in ("difference", "p", "pairs")] == ["float64", "float64", "Int64"]
    assert not (found.verdicts.p < 0.05).any()
    for path in folder.rglob("metrics.jsonl"):
        path.unlink()
    assert list(results_of(folder, small_study()).curves.columns) == ["run", "stage", "arm", "seed", "step"]


def test_runs_that_are_not_shown_are_counted(stored, monkeypatch):
    monkeypatch.setattr("oelm.show.notebook.results.SHOWN_RUNS", 4)
    shown = Results(GivenResults("walk", stored, None), "en")._repr_html_()
    assert shown.count("<table>") == 4
    assert "and 2 further runs" in shown


def test_what_is_not_there_is_one_line(stored):
    found = results_of(stored, small_study())
    for ask in (lambda: found.run("nobody"), lambda: found.verdict("nothing"), lambda: oelm.results("no-such-thing")):
        with pytest.raises(UserError) as error:
            ask()
        assert "\n" not in str(error.value)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs


def test_a_curve_that_was_edited_while_the_notebook_was_open_is_not_taken(tmp_path):
    folder = tmp_path / "walk"
    store_study(small_study(), folder, loss)
    found = results_of(folder, small_study())
    assert set(found.runs["state"]) == {"finished"}
    file = RunDirectory(next(folder.glob("trained-s0-*"))).metrics_file
    file.write_text(file.read_text().replace('"train_loss": ', '"train_loss": 1', 1))
    with pytest.raises(UserError, match=r"metrics\.jsonl: damaged: changed since the run was sealed"):
        found.curves  # noqa: B018


def test_a_text_is_never_markup(tmp_path):
    folder = tmp_path / "walk"
    folder.mkdir()
    study = small_study(NASTY)
    store_study(study, folder, loss)
    found = results_of(folder, study)
    views = [found, found.study, found.verdict("cost"), found.run(found.runs.run[0])]
    assert [type(view) for view in views[1:]] == [StudyView, VerdictView, RunView]
    for view in views:
        page = Tags()
        page.feed(view._repr_html_())
        assert page.tags <= {"div", "p", "b", "i", "h3", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"}
        assert page.attributes == []
        assert "\x1b" not in view._repr_html_() + repr(view)
    assert "&lt;script&gt;" in found.study._repr_html_()


def test_a_run_that_failed_says_why(stored, tmp_path):
    folder = tmp_path / "walk"
    folder.mkdir()
    store_study(small_study(), folder, lambda arm, seed, *_: float("nan") if arm != "trained" else 2.0)
    failed = [read_stored(path) for path in folder.iterdir() if path.name.startswith("frozen")]
    assert all("failed" in repr(RunView(each)) for each in failed)


WITHOUT_PANDAS = """
import sys
sys.modules["pandas"] = None
import oelm
assert "pandas" not in {name for name, module in sys.modules.items() if module}
assert "torch" not in sys.modules
try:
    oelm.results("demo")
except oelm.UserError as error:
    print(error)
"""


def test_without_pandas_one_line_says_how_to_get_it():
    done = subprocess.run([sys.executable, "-c", WITHOUT_PANDAS], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("oelm.results needs pandas: "), done.stderr
    assert "notebook" in done.stdout
    assert done.stdout.count("\n") == 1


def test_the_notebook_runs(tmp_path):
    """Offline, on the archive that comes with the repository; it is stored without output."""
    nbclient = pytest.importorskip("nbclient", reason="pip install 'oelm[test]'")
    pytest.importorskip("ipykernel", reason="pip install 'oelm[test]'")
    import nbformat

    stored = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert all(not cell.get("outputs") for cell in stored["cells"])
    notebook = nbformat.reads(json.dumps(stored), as_version=4)
    place = {"metadata": {"path": str(NOTEBOOK.parent)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=place).execute()
    shown = [
        output["data"].get("text/html", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "data" in output
    ]
    assert len(shown) == 6
    assert all("<table" in page for page in shown)


def test_runs_of_another_study_are_refused_and_those_of_the_right_one_are_not(stored):
    refuse_runs_of_others(small_study(), stored)
    with pytest.raises(UserError, match=r"none of its \d+ runs belongs to the study demo") as error:
        oelm.results(stored, study="demo")
    assert "\n" not in str(error.value)
