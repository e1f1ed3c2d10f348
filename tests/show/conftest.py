"""Reports that several tests read: drawing one takes seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_studies import example_study, findings_from, nasty_study, partial_loss

from oelm.analysis.findings import Findings
from oelm.core.measures import LOSS
from oelm.show.report import ReportFiles, write_report


@pytest.fixture(scope="session")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    study = example_study()
    return findings_from(study, tmp_path_factory.mktemp("complete"), bench=True, heads_of=study.arms)


@pytest.fixture(scope="session")
def partial(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return findings_from(example_study(), tmp_path_factory.mktemp("partial"), partial_loss)


@pytest.fixture(scope="session")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return findings_from(nasty_study(), tmp_path_factory.mktemp("nasty"))


@pytest.fixture(scope="session")
def complete_report(complete: Findings, tmp_path_factory: pytest.TempPathFactory) -> ReportFiles:
    return write_report(complete, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def few_figures() -> dict[str, Path]:
    """Names to keep where a test does not concern the figures."""
    from oelm.show.figures import gallery

    figures = gallery.figures_of(LOSS)
    return {name: figures[name] for name in ("final_perplexity", "differences")}
