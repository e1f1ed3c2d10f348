"""Write everything a study gives its reader into one folder, each file whole or not at all."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
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
from oelm.reporting.fonts import HOW_TO_GET_ONE, chinese_font, has_chinese
from oelm.reporting.html import html
from oelm.reporting.markdown import markdown
from oelm.reporting.markdown import table as markdown_table
from oelm.reporting.pdf import pdf
from oelm.study.declaration import Language

Format = Literal["md", "html", "pdf"]
FORMATS: tuple[Format, ...] = ("md", "html", "pdf")
LANGUAGES: tuple[Language, ...] = ("en", "zh")
DOCUMENTS_FIGURES = ("val_ppl_comparison", "parameter_distribution")  # also at the top, where the documents look
NEEDED_BYTES = 20 * 2**20  # of a report with all its figures, generously
LIBRARIES = ("matplotlib", "typst")


@dataclass(frozen=True)
class ReportFiles:
    """What was written, and in `remarks` what could not be, one line each."""

    folder: Path
    tables: dict[str, Path] = field(default_factory=dict)  # by file name
    figures: dict[str, Path] = field(default_factory=dict)  # by file name
    documents: dict[str, Path] = field(default_factory=dict)  # "en.pdf" -> path
    remarks: list[str] = field(default_factory=list)


def write_report(
    findings: Findings, out: Path, *, languages: Sequence[Language] = LANGUAGES, formats: Sequence[Format] = FORMATS
) -> ReportFiles:
    """Tables, figures and the document. Tables are in the first language."""
    _check_libraries()
    written = write_tables(findings, out, language=languages[0])
    with explaining_a_full_disk(out, needed_bytes=NEEDED_BYTES):
        gallery = _galleries(findings, languages)
        figures = _write_figures(out, gallery)
        documents = {
            f"{language}.{ending}": path
            for language in languages
            for ending, path in _write_documents(out, findings, language, gallery[language], formats)
        }
    wanted = {f"{language}.{ending}" for language in languages for ending in formats}
    remarks = [HOW_TO_GET_ONE] if wanted - documents.keys() else []
    return ReportFiles(out, written.tables, figures, documents, remarks)


def write_tables(findings: Findings, out: Path, *, language: Language = "en") -> ReportFiles:
    """The text, CSV and JSON files alone."""
    ensure_writable(out)
    table = tables.whole_table(findings, language)
    texts = {
        "comparison_table.txt": tables.as_text(table) + "\n",
        "comparison_table.md": markdown_table(table) + "\n",
        "comparison_table.csv": tables.comparison_csv(findings),
        "runs.csv": tables.runs_csv(findings),
        "hypothesis_validation.txt": verdicts.as_text(findings, language),
    }
    with explaining_a_full_disk(out, needed_bytes=NEEDED_BYTES):
        for name, text in texts.items():
            write_bytes(out / name, text.encode())
        write_json(out / "analysis_results.json", findings_as_json(findings))
    return ReportFiles(out, {name: out / name for name in (*texts, "analysis_results.json")})


def _check_libraries() -> None:
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"a report needs {' and '.join(missing)}: pip install 'oelm[report]'")


# ---- Figures -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Gallery:
    """The figures of one document, by name."""

    language: Language  # of their labels
    png: dict[str, bytes]
    svg: dict[str, bytes]

    def file_name(self, name: str, ending: str) -> str:
        return f"{name}.{self.language}.{ending}"


def _galleries(findings: Findings, languages: Sequence[Language]) -> dict[Language, _Gallery]:
    """Drawn once for each language; without a Chinese font all share the English ones."""
    from oelm.reporting.figures.gallery import drawn

    font = chinese_font()
    labels: dict[Language, Language] = {each: each if font is not None else "en" for each in languages}
    found = {}
    for each in dict.fromkeys(labels.values()):
        pictures = drawn(findings, language=each, font=font)
        png = {name: picture.png for name, picture in pictures.items()}
        found[each] = _Gallery(each, png, {name: picture.svg for name, picture in pictures.items()})
    return {language: found[label] for language, label in labels.items()}


def _write_figures(out: Path, galleries: dict[Language, _Gallery]) -> dict[str, Path]:
    (out / "figures").mkdir(exist_ok=True)
    contents: dict[Path, bytes] = {}
    first = next(iter(galleries.values()))
    for name in DOCUMENTS_FIGURES:
        if name in first.png:
            contents[out / f"{name}.png"] = first.png[name]
    for gallery in galleries.values():
        for name in gallery.png:
            contents[out / "figures" / gallery.file_name(name, "png")] = gallery.png[name]
            contents[out / "figures" / gallery.file_name(name, "svg")] = gallery.svg[name]
    for path, content in contents.items():
        write_bytes(path, content)
    return {path.name: path for path in contents}


# ---- Documents -----------------------------------------------------------------------------------------------------


def _write_documents(
    out: Path, findings: Findings, language: Language, gallery: _Gallery, formats: Sequence[Format]
) -> Iterator[tuple[Format, Path]]:
    document = document_of(findings, language, figures=gallery.svg)
    for ending in formats:
        content = _rendered(document, gallery, ending)
        if content is not None:
            path = out / f"report.{language}.{ending}"
            write_bytes(path, content)
            yield ending, path


def _rendered(document: Document, gallery: _Gallery, ending: Format) -> bytes | None:
    """None: a PDF that would show boxes for want of a font."""
    match ending:
        case "md":
            links = {name: f"figures/{gallery.file_name(name, 'png')}" for name in gallery.png}
            return markdown(document, figure_paths=links).encode()
        case "html":
            return html(document, figures=gallery.svg, font=chinese_font()).encode()
        case "pdf":
            font = chinese_font()
            if font is None and has_chinese(visible_text(document)):
                return None
            return pdf(document, figures=gallery.svg, font=font)
