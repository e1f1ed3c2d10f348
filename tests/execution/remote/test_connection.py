"""What a connection says when it cannot be made (R1), and that nothing of a user's is read by a shell (S1, S2)."""

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hostile import aimed_at
from loopback import HOST, needs_a_server, write_client_config

from oelm.core.sources import SYNCED_FILE
from oelm.execution.handles import LOCK_FILE
from oelm.execution.remote import connection, sent_program
from oelm.execution.remote.connection import ask, meaning
from oelm.execution.remote.hosts import SSH_CONFIG_VARIABLE, Server, server_named
from oelm.machine.errors import UserError
from oelm.run.directory import TUNING_FOLDER, RunDirectory
from oelm.storage.files import RUNS
from oelm.storage.ownership import STALE_SECONDS, Process, now, owner_of
from small_runs import free_port


@pytest.fixture
def client(server, tmp_path, monkeypatch):
    """A client's own copy of keys and known hosts, to be spoiled; its ssh config is written anew for each case."""
    for name in ("client_key", "known_hosts"):
        shutil.copy(server.folder / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SSH_CONFIG_VARIABLE, str(tmp_path / "ssh_config"))
    return tmp_path


def fails(expected: str, *, host: str = HOST, within: float = 60) -> None:
    started = time.monotonic()
    with pytest.raises(UserError, match=expected) as caught:
        ask(server_named(host), "place", inner="")
    assert time.monotonic() - started < within
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{host}: ")


@needs_a_server
def test_a_changed_host_key_stops_everything_whatever_the_users_config_says(server, client):
    write_client_config(client, server.port)
    with open(client / "ssh_config", "a") as config:
        config.write("  StrictHostKeyChecking no\n")
    other = (server.folder / "client_key.pub").read_text()
    (client / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {other}")
    before = (client / "known_hosts").read_text()
    fails("its host key has changed: nothing was sent")
    assert (client / "known_hosts").read_text() == before


@needs_a_server
def test_an_unknown_host_key_is_for_a_person_to_accept(server, client):
    write_client_config(client, server.port)
    with open(client / "ssh_config", "a") as config:
        config.write("  StrictHostKeyChecking no\n")
    (client / "known_hosts").write_text("")
    fails("its host key is not known yet; connect once by hand")
    assert (client / "known_hosts").read_text() == ""


@needs_a_server
def test_refused_authentication(server, client):
    (client / "other_key").unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(client / "other_key")], check=True)
    write_client_config(client, server.port, key="other_key")
    fails("login refused")


@needs_a_server
def test_nobody_at_the_port_and_no_such_host(client):
    write_client_config(client, free_port())
    fails("cannot be reached")
    fails("no such host", host="host-that-is-not.invalid")


@needs_a_server
def test_a_host_that_accepts_and_says_nothing_is_given_up(client, monkeypatch):
    monkeypatch.setitem(connection._OPTIONS, "ConnectTimeout", "2")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        write_client_config(client, silent.getsockname()[1])
        fails("cannot be reached", within=20)


@needs_a_server
def test_an_answer_that_takes_too_long_is_given_up(server, client):
    write_client_config(client, server.port)
    with pytest.raises(UserError, match="no answer within 0 s"):
        ask(server_named(HOST), "place", inner="", seconds=0.01)


# ---- Hostile words -------------------------------------------------------------------------------------------------


def carried_over(server, client, every: int) -> None:
    """Each as the name of a folder over there: literal to the last character, and nothing else happens."""
    write_client_config(client, server.port)
    there, canary = client / "far away", client / "canary"
    for number, string in enumerate(aimed_at(canary)[::every]):
        far = Server(HOST, HOST, str(there / str(number)), None, None, str(client / "ssh_config"))
        name = string.replace("/", "-").replace("\0", "-") or "empty"
        if name == "..":
            continue
        ask(far, "prepare", folders=[name], files=[])
        assert {path.name for path in (there / str(number)).iterdir()} == {name, sent_program.MANIFEST}
    assert not canary.exists()


@needs_a_server
def test_hostile_names_arrive_as_they_are(server, client):
    carried_over(server, client, every=12)


@pytest.mark.trial
@needs_a_server
def test_every_hostile_name_arrives_as_it_is(server, client):
    carried_over(server, client, every=1)


@needs_a_server
def test_the_canary_would_sing(server, client):
    """The same strings do run commands where they stand in a shell's line: the test above can fail."""
    write_client_config(client, server.port)
    canary = client / "canary"
    line = next(each for each in aimed_at(canary) if each.startswith("lab;"))
    subprocess.run(["ssh", "-F", str(client / "ssh_config"), "--", HOST, f"echo {line}"], check=False)
    assert canary.exists()


# ---- The program that is sent --------------------------------------------------------------------------------------


def test_an_older_oelm_over_there_is_told_from_one_that_cannot_be_imported(tmp_path):
    (tmp_path / "src" / "oelm").mkdir(parents=True)
    request = {"folder": str(tmp_path), "name": "lab", "module": "oelm.execution.remote.on_server", "arguments": []}
    with pytest.raises(sent_program.Refused, match="an older one; send yours with `oelm remote lab sync`"):
        sent_program.call(request)


def test_the_program_calls_files_as_the_package_does():
    names = sent_program.MANIFEST, sent_program.CONTROLLER_LOCK, sent_program.RUNS
    assert names == (SYNCED_FILE, LOCK_FILE, str(RUNS))
    assert (TUNING_FOLDER, STALE_SECONDS) == (sent_program.TUNING, sent_program.STALE_SECONDS)
    run = RunDirectory(Path())
    assert [file.name for file in (run.lock_file, run.status_file, run.result_file)] == [
        sent_program.RUN_LOCK, sent_program.RUN_STATUS, sent_program.RUN_RESULT,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "is_held"),
    [
        ({}, True),
        ({"pid_started": "1"}, False),  # the number belongs to another process now
        ({"boot_id": "before the last one"}, False),
        ({"pid": 2**22 + 1}, False),
        ({"host": "elsewhere"}, True),
        ({"host": "elsewhere", "heartbeat": time.time() - STALE_SECONDS - 1}, False),
        ({"host": "elsewhere", "heartbeat": None}, False),
    ],
)
def test_the_program_tells_a_live_owner_by_the_packages_rule(tmp_path, changes, is_held):
    owner = Process.current().__dict__ | {"since": now(), "heartbeat": time.time()} | changes
    (tmp_path / "lock").write_text(json.dumps(owner).ljust(512))
    assert (sent_program.holder_of(tmp_path / "lock") is not None) == is_held
    if owner["heartbeat"] is not None:
        assert (owner_of(tmp_path / "lock") is not None) == is_held


@pytest.mark.parametrize("content", ["[]", "{", '{"pid": 1}'])
def test_a_lock_that_names_nobody_is_free(tmp_path, content):
    (tmp_path / "lock").write_text(content)
    assert sent_program.holder_of(tmp_path / "lock") is None


def test_a_program_cut_on_its_way_does_nothing(tmp_path):
    server = Server(HOST, HOST, str(tmp_path / "far"), None, None, None)
    whole = connection._text(server, "prepare", {"folders": ["x"], "files": []})
    last = len(whole) - 2
    for length in [*range(0, last, last // 8), last - 40, last - 1]:
        subprocess.run([sys.executable, "-"], input=whole[:length], capture_output=True, check=False)
        assert not (tmp_path / "far").exists(), length
    done = subprocess.run([sys.executable, "-"], input=whole, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "far" / "x").is_dir()


def test_an_answer_is_found_after_what_a_login_shell_prints(tmp_path, monkeypatch):
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f"#!/bin/sh\necho 'Welcome, {{}} you have mail'\nexec '{sys.executable}' -\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(ssh.parent))
    server = Server(HOST, HOST, str(tmp_path), None, None, None)
    assert ask(server, "place", inner="bin")["path"] == str(ssh.parent)


def test_without_ssh_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"ssh is not installed here; .*openssh-client"):
        ask(Server(HOST, HOST, "x", None, None, None), "place", inner="")


@pytest.mark.parametrize(
    ("complaint", "code", "said"),
    [
        ("me@lab: Permission denied (publickey,password).", 255, "login refused"),
        ("oelm: /data/x: [Errno 13] Permission denied: '/data/x'", 2, "Permission denied: '/data/x'"),
    ],
)
def test_a_folder_that_may_not_be_written_is_no_matter_of_keys(complaint, code, said):
    assert said in meaning([complaint], code=code)
