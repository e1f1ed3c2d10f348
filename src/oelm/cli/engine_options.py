"""Options of `oelm run` that the engines bring along: the table says which, so that a new engine needs no word here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from oelm.execution.engines import ENGINES

_TITLES = ", ".join(f"{name} for {row.title}" for name, row in ENGINES.items())
EngineOption = Annotated[str, typer.Option("--on", metavar="|".join(ENGINES), help=f"Where runs execute: {_TITLES}.")]


def with_engine_options(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb with an option --NAME KEY=VALUE for each engine that has wishes of its own. They arrive in its **wishes,
    and an example of each ends its help.
    """
    signature = inspect.signature(verb, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    added = [_option(name, row.wishes) for name, row in ENGINES.items() if row.wishes is not None]
    verb.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    examples = [f"  oelm run demo --on {name} {row.example}" for name, row in ENGINES.items() if row.example]
    verb.__doc__ = "\n".join([inspect.cleandoc(verb.__doc__ or ""), *examples])
    return verb


def _option(name: str, text: str) -> inspect.Parameter:
    annotation = Annotated[list[str] | None, typer.Option(f"--{name}", metavar="KEY=VALUE", help=text)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
