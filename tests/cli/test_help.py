"""Help: in the lists of verbs every line is whole at 80 columns, and an example can be copied from any width."""

import pytest
import typer
from typer.main import get_command

from oelm.cli import app

WIDTH = 80


def groups(command, path="oelm"):
    if hasattr(command, "commands"):
        yield path, command
        for name, inner in command.commands.items():
            yield from groups(inner, f"{path} {name}")


@pytest.mark.parametrize(("path", "group"), list(groups(get_command(app))))
def test_no_line_in_a_list_of_verbs_is_cut_off(path, group):
    context = typer.Context(group, info_name=path, terminal_width=WIDTH)
    text = group.get_help(context)
    listed = text[text.index("Commands:") :].splitlines()[1:]
    assert [line.split()[0] for line in listed] == list(group.commands)
    for line in listed:
        assert not line.endswith("..."), line
        assert line.endswith((".", "?")), line
        assert len(line) <= WIDTH


@pytest.mark.parametrize("verb", [["run"], ["remote", "run"]])
def test_an_older_name_of_an_option_is_not_offered(verb):
    command = get_command(app)
    for name in verb:
        command = command.commands[name]
    text = command.get_help(typer.Context(command, info_name=" ".join(verb)))
    assert "--arms" in text
    assert "--groups" not in text
    assert "--groups" in {option for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize("width", [60, 120])
@pytest.mark.parametrize("verb", ["prepare", "run"])
def test_every_example_stays_on_one_line(verb, width):
    command = get_command(app).commands[verb]
    text = command.get_help(typer.Context(command, info_name=verb, terminal_width=width))
    examples = list(filter(None, text[text.index("Examples:") : text.index("Arguments:")].splitlines()[1:]))
    assert len(examples) > 2
    for line in examples:
        assert line.startswith("    oelm "), line
