"""Which server is meant: a name in remotes.yaml, or a host as ssh knows it; no option and no shell word fits the rule.

remotes.yaml holds what ssh does not know: folder, Python, GPUs. How to reach a host stands in ~/.ssh/config.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ValidationError

from oelm.core.sections import Count, Section
from oelm.core.settings import problem_lines, read_yaml_file
from oelm.execution.remote.project import project_root
from oelm.machine.errors import UserError

FILE = "remotes.yaml"
HOME_FOLDER = Path("~/.config/oelm")
SSH_CONFIG_VARIABLE = "OELM_SSH_CONFIG"  # a file for `ssh -F`; from the environment only: such a file can name commands
FOLDER = "oelm"  # in the home there

_USER = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
_HOST = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}"
HOST_RULE = "letters, digits, '.', '_' and '-', beginning with a letter or digit, optionally after USER@"


def check_host(text: str) -> str:
    """USER@HOST or HOST, or a UserError with the rule. It stands in argument lists of ssh and rsync."""
    if not re.fullmatch(f"(?:{_USER}@)?{_HOST}", text, flags=re.ASCII):
        raise UserError(f"host {text!r}: use {HOST_RULE}; put anything else ssh needs into ~/.ssh/config")
    return text


def check_text(text: str, *, what: str) -> str:
    """A path or a name that goes over as data: anything a file may be called, but for control characters."""
    if not text or text.startswith("-") or any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise UserError(f"{what} {text!r}: may not be empty, begin with '-' or contain control characters")
    return text


def _folder(text: str) -> str:
    check_text(text, what="folder")
    parts = [part for part in text.removeprefix("~/").split("/") if part]
    if not parts or ".." in parts or "." in parts or parts[0].startswith("~"):
        raise UserError(
            f"folder {text!r}: must be a folder in the home directory there or an absolute path, without '..'"
        )
    return text


def _checked(check: Callable[[str], str]) -> AfterValidator:
    """For pydantic, which takes a ValueError for its own."""

    def validated(text: str) -> str:
        try:
            return check(text)
        except UserError as error:
            raise ValueError(str(error)) from error

    return AfterValidator(validated)


class HostEntry(Section):
    """One server in remotes.yaml."""

    host: Annotated[str, _checked(check_host)] | None = None  # None: the entry's own name
    folder: Annotated[str, _checked(_folder)] = FOLDER
    python: Annotated[str, _checked(partial(check_text, what="python"))] | None = (
        None  # None: .venv/bin/python there, or python3
    )
    gpus: list[Count] | None = None  # None: the free ones


@dataclass(frozen=True)
class Server:
    """Where to, checked: nothing of it can be read as an option or by a shell."""

    name: str  # as the user calls it
    destination: str
    folder: str
    python: str | None
    gpus: list[int] | None
    ssh_config: str | None


def server_named(name: str) -> Server:
    """An entry of remotes.yaml, or any host that ssh knows; USER@ before it goes before whatever either says."""
    check_host(name)
    entries = _remotes()
    user, _, host = name.rpartition("@")
    entry = entries.get(name) or entries.get(host)
    if entry is None and host == "default":
        raise UserError("host default: remotes.yaml has no entry of that name; add one, or give the host")
    entry = entry or HostEntry()
    destination = entry.host or host
    if user:
        destination = f"{user}@{destination.rpartition('@')[2]}"
    return Server(name, destination, entry.folder, entry.python, entry.gpus, ssh_config())


def ssh_config() -> str | None:
    given = os.environ.get(SSH_CONFIG_VARIABLE)
    if not given:
        return None
    path = Path(given).expanduser().absolute()
    if not path.is_file():
        raise UserError(f"{SSH_CONFIG_VARIABLE}={given}: no such file")
    return check_text(str(path), what=SSH_CONFIG_VARIABLE)


def _remotes() -> dict[str, HostEntry]:
    folders = [Path(), HOME_FOLDER.expanduser()]  # the first one that has it counts
    with contextlib.suppress(UserError):  # not in a repository
        folders.insert(1, project_root())
    file = next((folder / FILE for folder in folders if (folder / FILE).exists()), None)
    if file is None:
        return {}
    tree = read_yaml_file(file) or {}
    if not isinstance(tree, dict) or not all(isinstance(entry, dict | None) for entry in tree.values()):
        raise UserError(f"{file}: must contain one name per server, with folder, python, gpus or host below it")
    entries = {}
    for name, content in tree.items():
        try:
            entries[check_host(name)] = HostEntry.model_validate(content if content is not None else {})
        except ValidationError as error:
            lines = problem_lines(error, model=HostEntry)
            raise UserError("\n".join(f"{file}: {name}.{line}" for line in lines)) from error
        except UserError as error:
            raise UserError(f"{file}: {error}") from error
    return entries
