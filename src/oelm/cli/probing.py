"""The verb `probe`: what each attention head of a stored model looks at. Heavy imports stand inside."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path
from typing import Annotated

import typer

from oelm.cli import completion
from oelm.cli.options import JsonOption, echo, print_json, refuse_if_in_archive, refuse_if_no_data
from oelm.machine.errors import UserError

ENDINGS = (".png", ".svg")


def probe(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|FOLDER",
            help="A run directory, a checkpoint, an export, or the local folder of a causal model of transformers.",
            autocompletion=completion.runs,
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            "--data", help="Prepared text, or probe:TASK, to score on.", show_default="random tokens that repeat"
        ),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option("--length", min=1, help="Tokens per sequence.", show_default="128, or what the model has"),
    ] = None,
    sequences: Annotated[int, typer.Option("--sequences", min=1, help="Number of sequences.")] = 16,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**62, help="Seed of the tokens, or of the windows.")] = 0,
    json_output: JsonOption = False,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", metavar="FILE", help="Draw a heat map as PNG and as SVG, whichever ending FILE has."),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="cpu, cuda, cuda:1, ...; auto: a GPU if there is one.")
    ] = "cpu",
) -> None:
    """Show what each attention head looks at, without training.

    Scores of a head: the share of its attention that goes to the previous token, to earlier occurrences of the same
    token (duplicate), to what followed these (induction), to the token itself and to the first one. docs/probes.md says
    where they are defined.

    \b
    Examples:
      oelm probe runs/frozen
      oelm probe runs/frozen/checkpoints/step-000400 --figure heads.png
      oelm probe exports/frozen --data data/stories
      oelm probe runs/recall --data probe:recall
      oelm probe models/gpt2 --length 256 --json
    """
    refuse_if_in_archive(path, "probe")
    if figure is not None:
        if figure.suffix not in ENDINGS:
            raise UserError(f"--figure {figure}: the name must end in {' or '.join(ENDINGS)}; both are written")
        if not figure.parent.is_dir():
            raise UserError(f"--figure {figure}: no such folder: {figure.parent}")
        if importlib.util.find_spec("matplotlib") is None:
            from oelm.machine.installation import install_command

            raise UserError(f"--figure: needs an extra: {install_command('report')}")
    own_length = None if data is None else _own_length(data)
    if own_length is not None and length not in (None, own_length):
        raise UserError(f"--length {length}: the examples of {data} have {own_length} tokens; leave it out")
    from oelm.run.stored_models.given import given_model

    given = given_model(path)
    asked_by = "--length" if own_length is None else f"--data {data}: length"
    tokens = given.checked_length(own_length or length, asked_by=asked_by)
    from oelm.run.stored_models.probing import probed

    found = probed(given, data=data, length=tokens, sequences=sequences, seed=seed, device=device)
    shown_on = data or "random tokens that repeat"
    if figure is not None:
        from oelm.show.figures.heads import heat_map_files

        heat_map_files(figure, found.scores.scores)
    count, each = found.tokens
    if json_output:
        how = {"data": data, "sequences": count, "length": each, "seed": seed}
        print_json({"model": str(given.path), "weights": str(found.weights), **how, **found.scores.as_json()})
        return
    from oelm.models.heads.kinds import table_lines

    echo(f"{found.weights}: {count} sequences of {each} tokens ({shown_on}), {found.scores.positions:,} positions")
    for line in table_lines(found.scores):
        echo(line)
    if given.probe is not None and data is None:
        command = shlex.join(["oelm", "probe", str(path), "--data", given.probe])
        echo(f"this run was trained on a probe; to score on its held-out examples: {command}")
    for written in [figure.with_suffix(ending) for ending in ENDINGS] if figure else []:
        echo(f"{written}: written")


def _own_length(data: str) -> int | None:
    """Of a probe's examples; None of a text, which can be cut anywhere. Refuses what is neither."""
    from oelm.core.probes.probe import WrongProbe, is_probe, probe_of

    if not is_probe(data):
        refuse_if_no_data(Path(data))
        return None
    try:
        return probe_of(data).length
    except WrongProbe as error:
        raise UserError(f"--data {error}") from error
