"""What is sent of a repository: what git tracks, without what is there for readers only."""

import subprocess

import pytest

from oelm.execution.remote.project import sent_digests, tracked_files
from oelm.study.archives import write_archive

SENT = ["README.md", "data/labels.csv", "docs/findings/study/README.md", "other.zip", "reports.md", "src/code.py"]
FOR_READERS = [
    "docs/findings/study/report/analysis_results.json",
    "docs/findings/study/report/figures/speed.en.png",
    "docs/findings/study/report/report.en.md",
    "docs/findings/study/runs.zip",
]


@pytest.fixture
def project(tmp_path):
    for name in [*SENT, *FOR_READERS]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("words")
    write_archive(tmp_path / "docs/findings/study/runs.zip", {"a/config.json": tmp_path / "README.md"}, study="study")
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_neither_archives_nor_reports_are_sent(project):
    assert sorted(tracked_files(project)) == sorted([*SENT, *FOR_READERS])
    assert sorted(sent_digests(project)) == SENT


def test_code_in_a_folder_of_a_report_is_sent_and_so_is_everything_beside_one_at_the_top(project):
    (project / "docs/findings/study/report/plot.py").write_text("words")
    (project / "analysis_results.json").write_text("{}")
    subprocess.run(["git", "add", "-A"], cwd=project, check=True)
    assert sorted(sent_digests(project)) == sorted(
        [*SENT, "analysis_results.json", "docs/findings/study/report/plot.py"]
    )
