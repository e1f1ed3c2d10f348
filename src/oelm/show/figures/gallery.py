"""All figures of a report, drawn and rendered once for one language."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from oelm.analysis.findings import Findings
from oelm.core.measures import LOSS, PROBE_ACCURACY, Measure
from oelm.show.figures import comparisons, costs, curves, heads, scale
from oelm.show.figures.canvas import Canvas, Rendered, drawing_settings, rendered
from oelm.show.fonts import ChineseFont
from oelm.study.declaration import Language

if TYPE_CHECKING:
    from matplotlib.figure import Figure


OF_PROBES: dict[str, Callable[[Canvas], Figure | None]] = {
    "by_difficulty": comparisons.by_difficulty,
    "steps_to_solve": comparisons.steps_to_solve,
}


def figures_of(measure: Measure) -> dict[str, Callable[[Canvas], Figure | None]]:
    """What a study by this measure has to show, in the order of the report, which content.py gives."""
    names = measure.figures
    return {
        names.final: comparisons.final,
        **(OF_PROBES if measure is PROBE_ACCURACY else {}),
        names.curve: curves.validation,
        **({} if measure is LOSS else {"validation_loss": curves.validation_loss}),
        "training_loss": curves.training_loss,
        "learning_rate": curves.learning_rate,
        **({} if "encoder" in measure.kinds else {"heads_forming": heads.forming, "head_scores": heads.last_scores}),
        "parameter_distribution": costs.parameter_distribution,
        names.by_parameters: costs.by_parameters,
        "speed": costs.speed,
        **({"target": costs.target} if measure.has_target else {}),
        "tuning": comparisons.tuning,
        "differences": comparisons.differences,
        "decomposition": comparisons.decomposition,
        "memory": costs.memory,
    }


def drawn(
    findings: Findings, *, language: Language, font: ChineseFont | None, with_pdf: bool = False
) -> dict[str, Rendered]:
    """Figures by name; one for which there is no data is left out."""
    canvas = Canvas(findings, language, font)
    found = {}
    with drawing_settings(language, font):
        of_sizes = {"scale": scale.scale} if findings.scale else {}
        for name, draw in (of_sizes | figures_of(canvas.measure)).items():
            figure = draw(canvas)
            if figure is not None:
                found[name] = rendered(figure, with_pdf=with_pdf)
    return found
