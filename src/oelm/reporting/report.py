"""Write everything a study gives its reader into one folder, each file whole or not at all."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from oelm.analysis.findings import Findings
from oelm.analysis.summary import findings_as_json
from oelm.errors import UserError
from oelm.files import ensure_writable, explaining_a_full_disk, write_bytes, write_json
from oelm.reporting import tables, verdicts
from oelm.reporting.content import document_of
from oelm.reporting.document import Document, visible_text
from oelm.reporting.fonts import HOW_TO_GET_ONE, ChineseFont, chinese_font, has_chinese
from oelm.reporting.html import html
from oelm.reporting.markdown import markdown
from oelm.reporting.markdown import table as markdown_table
from oelm.reporting.pdf import pdf
from oelm.study.declaration import Language

Format = Literal["md", "html", "pdf"]
FORMATS: tuple[Format, ...] = ("md", "html", "pdf")
DOCUMENTS_FIGURES = ("val_ppl_comparison", "parameter_distribution")  # also at the top, where the documents look
NEEDED_BYTES = 40 * 2**20  # of a report with all its figures, generously
_LIBRARIES = ("scipy", "matplotlib", "typst")


@dataclass
class ReportFiles:
    """What was written, and what could not be: one line each."""

    folder: Path
    documents: dict[str, Path] = field(default_factory=dict)  # "en.pdf" -> path
    tables: dict[str, Path] = field(default_factory=dict)  # by file name
    figures: dict[str, Path] = field(default_factory=dict)  # by file name
    remarks: list[str] = field(default_factory=list)


def write_report(
    findings: Findings, out: Path, *, languages: Sequence[Language] = ("en", "zh"), formats: Sequence[Format] = FORMATS
) -> ReportFiles:
    _check_libraries()
    ensure_writable(out)
    files = ReportFiles(out)
    with explaining_a_full_disk(out, needed_bytes=NEEDED_BYTES):
        _write_tables(files, findings, languages[0])
        gallery = _write_figures(files, findings, languages)
        for language in languages:
            _write_documents(files, findings, language, gallery[language], formats)
    return files


def write_tables(findings: Findings, out: Path, *, language: Language = "en") -> ReportFiles:
    """The tables and verdicts alone: no figures, no document."""
    ensure_writable(out)
    files = ReportFiles(out)
    with explaining_a_full_disk(out, needed_bytes=NEEDED_BYTES):
        _write_tables(files, findings, language)
    return files


def _check_libraries() -> None:
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"a report needs {', '.join(missing)}: pip install 'oelm[report]'")


# ---- Tables --------------------------------------------------------------------------------------------------------


def _write_tables(files: ReportFiles, findings: Findings, language: Language) -> None:
    table = tables.whole_table(findings, language)
    texts = {
        "comparison_table.txt": tables.as_text(table) + "\n",
        "comparison_table.md": markdown_table(table) + "\n",
        "comparison_table.csv": tables.comparison_csv(findings),
        "runs.csv": tables.runs_csv(findings),
        "hypothesis_validation.txt": verdicts.as_text(findings, language),
    }
    for name, text in texts.items():
        files.tables[name] = files.folder / name
        write_bytes(files.folder / name, text.encode())
    files.tables["analysis_results.json"] = files.folder / "analysis_results.json"
    write_json(files.tables["analysis_results.json"], findings_as_json(findings))


# ---- Figures -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Figures:
    """Those of one document: SVG by name, and the PNG a Markdown file links to."""

    svg: dict[str, bytes]
    links: dict[str, str]


def _write_figures(files: ReportFiles, findings: Findings, languages: Sequence[Language]) -> dict[Language, _Figures]:
    """Drawn once for each language; without a Chinese font all share the English ones."""
    from oelm.reporting.figures.gallery import drawn

    font = chinese_font()
    (files.folder / "figures").mkdir(exist_ok=True)
    found: dict[Language, _Figures] = {}
    for language in languages:
        drawn_in: Language = language if font is not None else "en"
        if drawn_in in found:
            found[language] = found[drawn_in]
            continue
        pictures = drawn(findings, language=drawn_in, font=font)
        for name, picture in pictures.items():
            for ending, content in (("png", picture.png), ("svg", picture.svg)):
                file_name = f"{name}.{drawn_in}.{ending}"
                files.figures[file_name] = files.folder / "figures" / file_name
                write_bytes(files.figures[file_name], content)
            if name in DOCUMENTS_FIGURES and f"{name}.png" not in files.figures:
                files.figures[f"{name}.png"] = files.folder / f"{name}.png"
                write_bytes(files.figures[f"{name}.png"], picture.png)
        links = {name: f"figures/{name}.{drawn_in}.png" for name in pictures}
        found[language] = found[drawn_in] = _Figures({name: picture.svg for name, picture in pictures.items()}, links)
    return found


# ---- Documents -----------------------------------------------------------------------------------------------------


def _write_documents(
    files: ReportFiles, findings: Findings, language: Language, figures: _Figures, formats: Sequence[Format]
) -> None:
    document = document_of(findings, language, figures=figures.svg)
    for ending in formats:
        content = _rendered(document, figures, ending, files)
        if content is not None:
            path = files.folder / f"report.{language}.{ending}"
            files.documents[f"{language}.{ending}"] = path
            write_bytes(path, content)


def _rendered(document: Document, figures: _Figures, ending: Format, files: ReportFiles) -> bytes | None:
    if ending == "md":
        return markdown(document, figure_paths=figures.links).encode()
    if ending == "html":
        return html(document, figures=figures.svg).encode()
    font: ChineseFont | None = chinese_font()
    if font is None and has_chinese(visible_text(document)):
        if HOW_TO_GET_ONE not in files.remarks:
            files.remarks.append(HOW_TO_GET_ONE)
        return None
    return pdf(document, figures=figures.svg, font=font)
