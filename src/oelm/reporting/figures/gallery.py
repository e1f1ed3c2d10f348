"""All figures of a report, drawn and rendered once for one language."""

from __future__ import annotations

from oelm.analysis.findings import Findings
from oelm.reporting.figures import comparisons, costs, curves, parameters
from oelm.reporting.figures.canvas import Canvas, Rendered, drawing_settings, rendered
from oelm.reporting.fonts import ChineseFont
from oelm.study.declaration import Language

FIGURES = {
    "final_perplexity": comparisons.final_perplexity,
    "val_ppl_comparison": curves.val_ppl_comparison,
    "training_loss": curves.training_loss,
    "learning_rate": curves.learning_rate,
    "parameter_distribution": parameters.parameter_distribution,
    "perplexity_by_parameters": parameters.perplexity_by_parameters,
    "speed": costs.speed,
    "target": costs.target,
    "tuning": comparisons.tuning,
    "differences": comparisons.differences,
    "decomposition": comparisons.decomposition,
    "memory": costs.memory,
}


FIGURES_OF_CLASSIFICATION = {
    "final_accuracy": comparisons.final_accuracy,
    "validation_accuracy": curves.validation_accuracy,
    "validation_loss": curves.validation_loss,
    "training_loss": curves.training_loss,
    "learning_rate": curves.learning_rate,
    "parameter_distribution": parameters.parameter_distribution,
    "accuracy_by_parameters": parameters.accuracy_by_parameters,
    "speed": costs.speed,
    "tuning": comparisons.tuning,
    "differences": comparisons.differences,
    "decomposition": comparisons.decomposition,
    "memory": costs.memory,
}


def drawn(findings: Findings, *, language: Language, font: ChineseFont | None) -> dict[str, Rendered]:
    """Figures by name; one for which there is no data is left out."""
    canvas = Canvas(findings, language, font)
    found = {}
    with drawing_settings(canvas):
        for name, draw in (FIGURES_OF_CLASSIFICATION if canvas.classifies else FIGURES).items():
            figure = draw(canvas)
            if figure is not None:
                found[name] = rendered(figure)
    return found
