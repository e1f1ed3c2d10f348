"""Which hosts are believed, and what remotes.yaml may say."""

import re
import subprocess

import pytest
from hostile import aimed_at

from oelm.execution.remote.connection import REMOTE_COMMAND, ssh_words
from oelm.execution.remote.hosts import SSH_CONFIG_VARIABLE, server_named
from oelm.machine.errors import UserError


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv(SSH_CONFIG_VARIABLE, raising=False)


def test_a_hostile_host_is_refused_in_one_line_with_the_rule_and_others_are_taken():
    for host in aimed_at("/nowhere/canary"):
        with pytest.raises(UserError, match="letters, digits") as caught:
            server_named(host)
        assert "\n" not in str(caught.value)
    for host in ("lab", "gpu-4.example.org", "me@lab", "10.0.0.1", "a_b", "9lives"):
        assert server_named(host).destination == host


def test_host_keys_are_checked_nobody_is_asked_and_time_is_bounded():
    words = ssh_words(server_named("lab"))
    for option in ("StrictHostKeyChecking=yes", "BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=10"):
        assert option in words
    assert REMOTE_COMMAND == "python3 -"


def test_remotes_yaml_says_folder_python_and_gpus(tmp_path):
    (tmp_path / "remotes.yaml").write_text(
        "lab: {host: me@gpu4, folder: ~/work/oelm, python: env/bin/python, gpus: [0, 2]}\n"
    )
    server = server_named("lab")
    assert (server.destination, server.folder, server.python, server.gpus) == (
        "me@gpu4", "~/work/oelm", "env/bin/python", [0, 2],
    )  # fmt: skip
    assert server_named("you@lab").destination == "you@gpu4"
    assert server_named("you@lab").folder == "~/work/oelm"


def test_the_home_has_one_too_and_the_working_folders_goes_before(tmp_path):
    folder = tmp_path / "home" / ".config" / "oelm"
    folder.mkdir(parents=True)
    (folder / "remotes.yaml").write_text("lab: {folder: a}\n")
    assert server_named("lab").folder == "a"
    (tmp_path / "remotes.yaml").write_text("lab:\n")
    assert server_named("lab").folder == "oelm"


def test_the_projects_file_counts_in_its_subfolders_too(tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "src" / "deep").mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    (project / "remotes.yaml").write_text("lab: {folder: a}\n")
    monkeypatch.chdir(project / "src" / "deep")
    assert server_named("lab").folder == "a"
    (project / "src" / "deep" / "remotes.yaml").write_text("lab: {folder: b}\n")
    assert server_named("lab").folder == "b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lab: {foldr: x}", "lab.foldr: unknown key; did you mean folder?"),
        ("lab: {folder: ../x}", "without '..'"),
        ("lab: {folder: ''}", "may not be empty"),
        ("lab: {folder: ~other/x}", "must be a folder in the home directory there"),
        ("lab: {folder: -x}", "begin with '-'"),
        ("lab: {python: -c}", "begin with '-'"),
        ("lab: {host: -oProxyCommand=x}", "letters, digits"),
        ("lab: {gpus: '0,2'}", "lab.gpus: must be a list"),
        ("lab: {gpus: [-1]}", "must be at least 0"),
        ("-oProxyCommand=x: {}", "letters, digits"),
        ("- lab", "must contain one name per server"),
        ("lab: [", "is not YAML"),
    ],
)
def test_problems_in_remotes_yaml_are_one_line_each(tmp_path, text, expected):
    (tmp_path / "remotes.yaml").write_text(text)
    with pytest.raises(UserError, match=re.escape(expected)) as caught:
        server_named("lab")
    assert str(caught.value).startswith("remotes.yaml: ")
    assert "\n" not in str(caught.value)


def test_remotes_yaml_that_cannot_be_read_is_one_line(tmp_path):
    (tmp_path / "remotes.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"remotes\.yaml: not a text file"):
        server_named("lab")
    (tmp_path / "remotes.yaml").unlink()
    (tmp_path / "remotes.yaml").mkdir()
    with pytest.raises(UserError, match=r"remotes\.yaml: cannot be read"):
        server_named("lab")


def test_the_default_host_has_to_be_written_down(tmp_path):
    with pytest.raises(UserError, match=r"remotes.yaml has no entry of that name"):
        server_named("default")
    (tmp_path / "remotes.yaml").write_text("default: {host: gpu4}\n")
    assert server_named("default").destination == "gpu4"


def test_a_config_file_for_ssh_comes_from_the_environment_only(tmp_path, monkeypatch):
    monkeypatch.setenv(SSH_CONFIG_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(UserError, match="no such file"):
        server_named("lab")
    (tmp_path / "none").write_text("")
    assert ssh_words(server_named("lab"))[1:3] == ["-F", str(tmp_path / "none")]
