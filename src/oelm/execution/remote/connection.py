"""One connection: `ssh -- HOST "python3 -"`. The remote command is always these two words; everything else is data on
its standard input, so that no shell over there reads a word of the user's.

Host keys are always checked, and no password is asked for: what needs a person is said in one line.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from oelm.execution.remote.hosts import Server
from oelm.execution.remote.sent_program import MARK
from oelm.machine.errors import UserError
from oelm.machine.exhaustion import mebibytes
from oelm.machine.plurals import number_of
from oelm.machine.visible import visible

CONNECT_SECONDS = 15
ANSWER_SECONDS = 120.0  # for whatever ends by itself; a log that is followed may take for ever
_OPTIONS = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "ConnectTimeout": str(CONNECT_SECONDS),
    "ServerAliveInterval": "10",
    "ServerAliveCountMax": "3",
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "RemoteCommand": "none",
    "LogLevel": "ERROR",  # no banners among the complaints
}
_PROGRAM = Path(__file__).with_name("sent_program.py")
REMOTE_COMMAND = "python3 -"


@dataclass(frozen=True)
class EndedCommand:
    """How a call over there ended, and what it complained about."""

    code: int
    errors: list[str]


def ssh_words(server: Server) -> list[str]:
    """ssh and its options; the destination follows after `--`."""
    config = ["-F", server.ssh_config] if server.ssh_config else []
    return ["ssh", *config, "-T", *(word for key, value in _OPTIONS.items() for word in ("-o", f"{key}={value}"))]


def _command(server: Server) -> list[str]:
    return [*ssh_words(server), "--", server.destination, REMOTE_COMMAND]


def _text(server: Server, action: str, payload: dict[str, Any]) -> bytes:
    request = {"action": action, "name": server.name, "folder": server.folder, "python": server.python, **payload}
    return b"%s\n\nmain(json.loads(%s))\n" % (_PROGRAM.read_bytes(), ascii(json.dumps(request)).encode("ascii"))


def ask(server: Server, action: str, *, seconds: float = ANSWER_SECONDS, **payload: Any) -> dict[str, Any]:
    """What an action of the far side answers."""
    try:
        done = subprocess.run(
            _command(server), input=_text(server, action, payload), capture_output=True, timeout=seconds, check=False
        )
    except FileNotFoundError as error:
        raise no_program("ssh", "openssh-client") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{server.name}: no answer within {seconds:.0f} s; try again, or check with ssh") from error
    errors = done.stderr.decode("utf-8", "replace").splitlines()
    if done.returncode:
        _complain(server, EndedCommand(done.returncode, errors))
    _, found, answer = done.stdout.decode("utf-8", "replace").rpartition(MARK)
    try:
        if not found:
            _complain(server, EndedCommand(0, errors))
        said: dict[str, Any] = json.loads(answer)
        return said
    except ValueError:
        _complain(server, EndedCommand(0, errors))


def relay(server: Server, module: str, *arguments: str) -> EndedCommand:
    """Run a module of oelm over there; what it prints appears here as it comes."""
    text = _text(server, "call", {"module": module, "arguments": list(arguments)})
    with tempfile.TemporaryFile() as program, tempfile.TemporaryFile() as complaints:
        program.write(text)
        program.seek(0)
        try:
            with subprocess.Popen(
                _command(server), stdin=program, stdout=subprocess.PIPE, stderr=complaints
            ) as running:
                code = _shown(running)
        except FileNotFoundError as error:
            raise no_program("ssh", "openssh-client") from error
        complaints.seek(0)
        ended = EndedCommand(code, complaints.read().decode("utf-8", "replace").splitlines())
    if code in (255, 127, 126) or code < 0 or _lacks_oelm(ended.errors):
        _complain(server, ended)
    return ended


def _shown(running: subprocess.Popen[bytes]) -> int:
    """Print what a command prints as it comes; what would act on the terminal is shown instead."""
    decoder, output = codecs.getincrementaldecoder("utf-8")("replace"), running.stdout
    try:
        while output is not None and (content := os.read(output.fileno(), 2**16)):
            sys.stdout.write(visible(decoder.decode(content)))
            sys.stdout.flush()
        return running.wait()
    except BaseException:
        running.kill()
        raise


# ---- Complaints ----------------------------------------------------------------------------------------------------


def no_program(name: str, package: str) -> UserError:
    return UserError(f"{name} is not installed here; install it, for example with: apt-get install {package}")


NO_RSYNC = "rsync is not installed there; install it, or ask its administrator (apt-get install rsync)"
# What ssh prints -> what it means and what to do. The first that fits counts: a changed key also fails verification.
_MEANINGS = (
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key .* has changed",
        "its host key has changed: nothing was sent; ask its administrator, and only then remove the old key with "
        "ssh-keygen -R",
    ),
    (
        r"host key is known for|Host key verification failed",
        "its host key is not known yet; connect once by hand with ssh, compare the fingerprint, and try again",
    ),
    (
        r"Permission denied \(|Permission denied, please|Too many authentication failures|No supported authentication",
        "login refused; a key without a password prompt is needed (ssh-copy-id, ssh-add); test it with ssh",
    ),
    (r"Could not resolve hostname", "no such host; is the name in ~/.ssh/config or in remotes.yaml?"),
    (
        r"Connection refused|timed out|No route to host|Network is unreachable|Connection to .* port",
        "cannot be reached; is it switched on, and are you on its network (VPN)?",
    ),
    (
        r"Bad configuration option|Bad owner or permissions|terminating, \d+ bad",
        "ssh does not accept its own settings; `ssh -G HOST` names the file and the line",
    ),
    (r"rsync: not found|rsync: command not found|'rsync'", NO_RSYNC),
    (r"python3: not found|python3: command not found", "no python3 there in a login without a terminal"),
    (r"protocol version mismatch", "its login shell prints text in a login without a terminal; remove that"),
    (
        r"No space left on device|Disk quota exceeded",
        "the disk is full there; make room and run the same command again",
    ),
)
CUT = "the connection was cut; what runs there continues, and the same command is safe to repeat"


def meaning(errors: list[str], *, code: int) -> str:
    """What ssh or rsync complained about, in one line that says what to do."""
    text = "\n".join(errors)
    for pattern, explanation in _MEANINGS:
        if re.search(pattern, text):
            return explanation
    if code == 255 or code < 0 or re.search(r"connection unexpectedly closed|Broken pipe|closed by remote host", text):
        return CUT
    last = next((line.strip() for line in reversed(errors) if line.strip()), "")
    return last.removeprefix("oelm: ") or f"ended with code {code} and no message; does `python3 -V` work there?"


def _lacks_oelm(errors: list[str]) -> bool:
    return any("No module named" in line for line in errors)


def _complain(server: Server, ended: EndedCommand) -> NoReturn:
    if _lacks_oelm(ended.errors):
        missing = re.search(r"No module named '?([\w.]+)", "\n".join(ended.errors))
        name = missing[1].partition(".")[0] if missing else "oelm"
        raise UserError(
            f"{server.name}: its Python has no {name}; `oelm remote {server.name} check` says how to install it"
        )
    if ended.code == 0:
        raise UserError(f"{server.name}: no answer; does its login shell run commands passed to it?")
    raise UserError(f"{server.name}: {meaning(ended.errors, code=ended.code)}")


# ---- Copies --------------------------------------------------------------------------------------------------------
# rsync over the same ssh: incremental, resumed after a cut, whole files only under their names. `--secluded-args` keeps
# paths from the shell over there; --delay-updates gives files their names at the end, together.

PARTIAL = ".oelm-partial"  # beside a file on its way; never read as one
SILENCE_SECONDS = 60
_VANISHED = 24  # a file went away between listing and copying: a checkpoint was pruned
_ALWAYS = ("-s", "--stats", f"--partial-dir={PARTIAL}", "--delay-updates", f"--timeout={SILENCE_SECONDS}")


@dataclass(frozen=True)
class Copied:
    """What went over the wire."""

    files: int = 0
    bytes: int = 0

    def __add__(self, other: Copied) -> Copied:
        return Copied(self.files + other.files, self.bytes + other.bytes)

    def __str__(self) -> str:
        return f"{number_of(self.files, 'file')}, {mebibytes(self.bytes)}"


def send(server: Server, source: Path, folder: str, *options: str, names: list[str] | None = None) -> Copied:
    """Copy a folder's content, or the named files in it, into an existing folder over there."""
    paths = [f"{source}/", f"{server.destination}:{folder}/"]
    return _rsync(server, options, paths, names, way="sent")


def receive(server: Server, folder: str, target: Path, *options: str) -> Copied:
    """Copy the content of a folder over there into one here. Links and devices are left out. Times are compared to
    the nanosecond: a tiny model is written twice within a second.
    """
    paths = [f"{server.destination}:{folder}/", f"{target}/"]
    return _rsync(server, ("-rt", "--modify-window=-1", *options), paths, None, way="received")


def _rsync(
    server: Server,
    options: tuple[str, ...],
    paths: list[str],
    names: list[str] | None,
    *,
    way: Literal["sent", "received"],
) -> Copied:
    """Bytes that went over the wire are what it counts: of a file that changed a little, little does."""
    listed = [] if names is None else ["--from0", "--files-from=-"]
    # Quoted as rsync splits --rsh, which is not how a shell does: a quote inside quotes is doubled.
    shell = " ".join("'" + word.replace("'", "''") + "'" for word in ssh_words(server))
    try:
        done = subprocess.run(
            ["rsync", *_ALWAYS, f"--rsh={shell}", *listed, *options, "--", *paths],
            input=b"".join(os.fsencode(name) + b"\0" for name in names or ()),
            capture_output=True,
            env=os.environ | {"LC_ALL": "C"},
            check=False,
        )
    except FileNotFoundError as error:
        raise no_program("rsync", "rsync") from error
    if done.returncode not in (0, _VANISHED):
        errors = done.stderr.decode("utf-8", "replace").splitlines()
        code = 255 if done.returncode in (10, 12, 20, 30, 35) else done.returncode
        told = [line for line in errors if line.strip() and not line.startswith("rsync error:")]
        if done.returncode in (11, 23) and told:  # its own last line only counts them up: the first one says why
            errors = told[:1]
        raise UserError(f"{server.name}: {meaning(errors, code=code)}")
    text = done.stdout.decode("utf-8", "replace")

    def number(label: str) -> int:
        found = re.search(rf"{label}: ([\d,.]+)", text)
        return int(re.sub(r"\D", "", found[1])) if found else 0

    return Copied(number("Number of regular files transferred"), number(f"Total bytes {way}"))
