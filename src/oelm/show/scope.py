"""How far a result reaches, in one line that stands beside every claim."""

from __future__ import annotations

from oelm.analysis.findings import Scope, Span
from oelm.show import numbers
from oelm.show.words import say
from oelm.study.declaration import Language, in_language


def scope_line(scope: Scope, language: Language) -> str:
    """1.3M parameters, 0.6M tokens a run, tinystories-4096; then what the study states."""
    line = say(
        language,
        "scope.line",
        parameters=_counts(scope.parameters, language),
        read=_read(scope, language),
        data=say(language, "list_comma").join(scope.data),
    )
    if not scope.stated:
        return line
    return say(language, "scope.stated", line=line, stated=in_language(scope.stated, language))


def _read(scope: Scope, language: Language) -> str:
    if scope.examples is None:
        return say(language, "scope.tokens", count=_counts(scope.tokens, language))
    return say(language, "scope.examples", count=_counts(scope.examples, language))


def _counts(span: Span, language: Language) -> str:
    least, most = numbers.spoken(span.least), numbers.spoken(span.most)
    return least if least == most else say(language, "scope.span", least=least, most=most)
