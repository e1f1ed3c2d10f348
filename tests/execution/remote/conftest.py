"""One server for the session; a project and a folder over there for each test that wants one."""

from __future__ import annotations

import sys

import pytest
import yaml
from loopback import HOST, World, git_add, make_project, start_sshd


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    started = start_sshd(tmp_path_factory.mktemp("sshd"))
    yield started
    started.cut()
    started.sshd.terminate()
    started.sshd.wait(20)


@pytest.fixture
def world(server, token_folder, tmp_path):
    """A part of the package is enough where nothing is run."""
    return build_world(server, token_folder, tmp_path, package="oelm/cli")


@pytest.fixture(scope="module")
def shared_world(server, token_folder, tmp_path_factory):
    return build_world(server, token_folder, tmp_path_factory.mktemp("world"))


def build_world(server, token_folder, folder, package="oelm") -> World:
    """With a space in the paths of both sides."""
    project = make_project(folder / "my project", token_folder, package)
    there = folder / "far away" / "oelm"
    remotes = {HOST: {"folder": str(there), "python": sys.executable}}
    (project / "remotes.yaml").write_text(yaml.safe_dump(remotes))
    git_add(project)
    return World(server, project, there)
