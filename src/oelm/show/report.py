"""Write everything a study gives its reader into one folder, which appears as a whole or not at all.

A folder holds one report: what an earlier one left there, in another language too, goes with it. Files of the reader's
own stay.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from oelm.analysis.findings import Findings
from oelm.analysis.summary import findings_as_json
from oelm.machine.errors import UserError
from oelm.machine.installation import install_command
from oelm.machine.visible import visible
from oelm.show import latex, tables, verdicts
from oelm.show.article import visible_text
from oelm.show.cautions import cautions
from oelm.show.citable import numbers_file
from oelm.show.content import article_of, unnumbered_article
from oelm.show.figures.canvas import Rendered
from oelm.show.fonts import HOW_TO_GET_ONE, chinese_font, has_chinese
from oelm.show.html import html
from oelm.show.markdown import markdown
from oelm.show.pdf import pdf
from oelm.show.words import LANGUAGES
from oelm.storage.files import REPORT_RESULTS as RESULTS_FILE
from oelm.storage.files import TEMPORARY_PREFIX, ensure_writable, explaining_a_full_disk, write_bytes, write_json
from oelm.storage.whole_folder import replacing
from oelm.study.declaration import Language

Format = Literal["md", "html", "pdf"]
FORMATS: tuple[Format, ...] = ("md", "html", "pdf")
LIBRARIES = ("matplotlib", "typst")
NUMBERS_FILE = "numbers.tex"
# Names in a report's folder, those of older versions too; the last ones are what these, killed, left in it.
OUR_FILES = re.compile(
    rf"{re.escape(RESULTS_FILE)}|comparison_table\.(txt|md|csv)|runs\.csv|hypothesis_validation\.txt"
    r"|(val_ppl_comparison|parameter_distribution)\.png"
    rf"|report\.(en|zh)\.(md|html|pdf)|{re.escape(NUMBERS_FILE)}|tables\.(en|zh)\.tex"
    r"|figures|figures/\w+\.(en|zh)\.(png|svg|pdf)"
    rf"|(figures/)?{re.escape(TEMPORARY_PREFIX)}.*"
)


@dataclass(frozen=True)
class ReportFiles:
    """What was written, and in `remarks` what could not be, one line each."""

    folder: Path
    tables: dict[str, Path] = field(default_factory=dict)  # by file name
    figures: dict[str, Path] = field(default_factory=dict)  # by file name
    articles: dict[str, Path] = field(default_factory=dict)  # "en.pdf" -> path
    remarks: list[str] = field(default_factory=list)


def write_report(
    findings: Findings, out: Path, *, languages: Sequence[Language] = LANGUAGES, formats: Sequence[Format] = FORMATS
) -> ReportFiles:
    """Tables, figures and the article. Tables are in the first language."""
    check_libraries()
    with _new_report(out) as (folder, remarks):
        tables_written = _write_tables(folder, findings, languages)
        gallery = _galleries(findings, languages)
        figures = _write_figures(folder, gallery)
        articles = {
            f"{language}.{ending}": name
            for language in languages
            for ending, name in _write_articles(folder, findings, language, gallery[language], formats)
        }
        wanted = {f"{language}.{ending}" for language in languages for ending in formats}
        remarks += [HOW_TO_GET_ONE] if wanted - articles.keys() else []
    return ReportFiles(
        out,
        {name: out / name for name in tables_written},
        {Path(name).name: out / name for name in figures},
        {key: out / name for key, name in articles.items()},
        remarks,
    )


def write_tables(findings: Findings, out: Path, *, language: Language = "en") -> ReportFiles:
    """The text, CSV and JSON files alone."""
    with _new_report(out) as (folder, remarks):
        written = _write_tables(folder, findings, [language])
    return ReportFiles(out, {name: out / name for name in written}, remarks=remarks)


@contextlib.contextmanager
def _new_report(out: Path) -> Iterator[tuple[Path, list[str]]]:
    """A folder beside `out` that takes its place at the end, and remarks, among them what has gone with the old one."""
    place = out.resolve().parent
    ensure_writable(place)
    remarks: list[str] = []
    with (
        explaining_a_full_disk(place),
        replacing(out, ours=OUR_FILES, mark=RESULTS_FILE) as folder,
    ):
        yield folder, remarks
        gone = sorted({path.name for path in out.glob("report.*.*")} - {path.name for path in folder.iterdir()})
        if gone:
            remarks.append(f"{out}: removed together with the previous report: {', '.join(gone)}")


def _write_tables(folder: Path, findings: Findings, languages: Sequence[Language]) -> list[str]:
    """Those for a paper in every language, the others in the first."""
    language = languages[0]
    table = tables.whole_table(findings, language)
    texts = {
        "comparison_table.txt": f"{tables.as_text(table)}\n\n{table.caption}\n",
        "comparison_table.csv": tables.comparison_csv(findings),
        "runs.csv": tables.runs_csv(findings),
        "hypothesis_validation.txt": verdicts.as_text(findings, language, first=cautions(findings, language)),
        NUMBERS_FILE: numbers_file(findings),
    }
    for each in languages:
        article = unnumbered_article(findings, each, figures=())
        texts[f"tables.{each}.tex"] = latex.tables(article, study=findings.study.name)
    for name, text in texts.items():
        write_bytes(folder / name, visible(text).encode())
    write_json(folder / RESULTS_FILE, findings_as_json(findings))
    return [*texts, RESULTS_FILE]


def check_libraries() -> None:
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"a report needs {' and '.join(missing)}: {install_command('report')}")


# ---- Figures -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Gallery:
    """The figures of one article, by name."""

    language: Language  # of their labels
    pictures: dict[str, Rendered]

    def path(self, name: str, ending: str) -> str:
        return f"figures/{name}.{self.language}.{ending}"


def _galleries(findings: Findings, languages: Sequence[Language]) -> dict[Language, _Gallery]:
    """Drawn once for each language, as PDF for the first; without a Chinese font all share the English ones."""
    from oelm.show.figures.gallery import drawn

    font = chinese_font()
    labels: dict[Language, Language] = {each: each if font is not None else "en" for each in languages}
    found = {}
    for each in dict.fromkeys(labels.values()):
        found[each] = _Gallery(each, drawn(findings, language=each, font=font, with_pdf=each == labels[languages[0]]))
    return {language: found[label] for language, label in labels.items()}


def _write_figures(folder: Path, galleries: dict[Language, _Gallery]) -> list[str]:
    (folder / "figures").mkdir()
    contents = {
        gallery.path(name, ending): content
        for gallery in galleries.values()
        for name, picture in gallery.pictures.items()
        for ending, content in picture.files().items()
    }
    for path, content in contents.items():
        write_bytes(folder / path, content)
    return list(contents)


# ---- Documents -----------------------------------------------------------------------------------------------------


def _write_articles(
    folder: Path, findings: Findings, language: Language, gallery: _Gallery, formats: Sequence[Format]
) -> Iterator[tuple[Format, str]]:
    article, font = article_of(findings, language, figures=gallery.pictures), chinese_font()
    pictures = {name: picture.svg for name, picture in gallery.pictures.items()}
    for ending in formats:
        match ending:
            case "md":
                links = {name: gallery.path(name, "png") for name in gallery.pictures}
                content = markdown(article, figure_paths=links).encode()
            case "html":
                content = html(article, figures=pictures, font=font).encode()
            case "pdf":
                if font is None and has_chinese(visible_text(article)):
                    continue  # it would show boxes
                content = pdf(article, figures=pictures, font=font)
        name = f"report.{language}.{ending}"
        write_bytes(folder / name, content)
        yield ending, name
