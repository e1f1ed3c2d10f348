"""What runs on the other side before oelm is there: sent as text to `python3 -`, with what to do as the last line.

Standard library only, and nothing newer than Python 3.6. A text that was cut on its way lacks its last line or does
not parse: then nothing happens.
"""

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any, Dict, Optional

Tree = Dict[str, Any]
Brought = Dict[str, Optional[str]]  # name -> its digest; None: on its way, or not written down
MARK = "\x1eoelm "  # before an answer: a login shell may have printed before it
# Names that the package has too; a test holds them together.
MANIFEST = ".oelm-synced.json"  # runs take their commit from it
RUNS, TUNING, CONTROLLER_LOCK = "runs", "tuning", "controller.lock"
RUN_LOCK, RUN_STATUS, RUN_RESULT = "lock.json", "status.json", "experiment_result.json"
STALE_SECONDS = 120.0  # another host's lock without a heartbeat for so long is stale
PROBE = """
import json, sys
facts = {"version": "%d.%d.%d" % sys.version_info[:3], "executable": sys.executable}
try:
    import torch
    facts["torch"] = torch.__version__
    facts["cuda"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
except Exception as error:
    facts["torch_error"] = (str(error) or type(error).__name__).splitlines()[0]
try:
    import oelm, oelm.cli, oelm.execution.controller
    facts["oelm"] = oelm.__version__
except Exception as error:
    facts["oelm_error"] = (str(error) or type(error).__name__).splitlines()[0]
print(json.dumps(facts))
"""


class Refused(Exception):
    """Said to the user in one line."""


def main(request: Tree) -> None:
    actions = {
        "facts": facts, "prepare": prepare, "synced": synced, "unsent": unsent, "holds": holds, "place": place,
        "call": call,
    }  # fmt: skip
    try:
        answer = actions[request["action"]](request)
    except (Refused, OSError) as error:
        sys.stderr.write(f"oelm: {error}\n")
        sys.exit(2)
    if answer is not None:
        sys.stdout.write(MARK + json.dumps(answer) + "\n")


def folder_of(request: Tree) -> str:
    return os.path.join(os.path.expanduser("~"), os.path.expanduser(request["folder"]))


def python_of(request: Tree, folder: str) -> str:
    """The Python of the entry, relative to the folder; otherwise the folder's own environment; otherwise any."""
    chosen = request.get("python")
    if chosen is None:
        own = os.path.join(folder, ".venv", "bin", "python")
        return own if os.path.exists(own) else "python3"
    chosen = os.path.expanduser(chosen)
    return os.path.join(folder, chosen) if "/" in chosen else chosen


def environment_of(folder: str) -> "dict[str, str]":
    """What was sent is what runs, installed or not."""
    environment = dict(os.environ)
    source = os.path.join(folder, "src")
    if has_code(folder):
        before = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = source + (os.pathsep + before if before else "")
    environment |= {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}  # nothing is imported from the project's own folder
    return environment


def has_code(folder: str) -> bool:
    return os.path.isdir(os.path.join(folder, "src", "oelm"))


# ---- What is there -------------------------------------------------------------------------------------------------


def facts(request: Tree) -> Tree:
    folder = folder_of(request)
    there = os.path.isdir(folder)
    nearest = folder
    while not os.path.lexists(nearest):
        nearest = os.path.dirname(nearest)
    blocked = not os.path.isdir(nearest)
    while not os.path.isdir(nearest):
        nearest = os.path.dirname(nearest)
    usage = shutil.disk_usage(nearest)
    python = python_of(request, folder)
    return {
        "folder": folder,
        "is_there": there,
        "has_code": has_code(folder),
        "is_writable": not blocked and os.access(nearest, os.W_OK | os.X_OK),
        "is_foreign": is_foreign(folder),
        "free_bytes": usage.free,
        "rsync": first_line(["rsync", "--version"]),
        "python": python,
        "probe": probe(python, folder if there else nearest, environment_of(folder), request["probe_seconds"]),
        "gpus": [output_of([request["gpu_tool"], *query]) for query in request["gpu_queries"]],
        "users": users_of(output_of([request["gpu_tool"], *request["gpu_queries"][1]])),
        "controllers": controllers(folder),
    }


def probe(python: str, folder: str, environment: "dict[str, str]", seconds: float) -> Any:
    try:
        done = subprocess.run(
            [python, "-c", PROBE],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=seconds,
        )
        return json.loads(done.stdout.decode().splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"did not answer within {seconds} s"}
    except (OSError, ValueError, IndexError) as error:
        return {"error": getattr(error, "strerror", None) or "does not start"}


def output_of(command: "list[str]") -> str:
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=True
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        return ""


def first_line(command: "list[str]") -> str:
    return (output_of(command).splitlines() or [""])[0]


def users_of(processes: str) -> "dict[str, str]":
    """pid -> user, of what the GPU tool listed as (GPU, pid, memory)."""
    import pwd

    users = {}
    for line in processes.splitlines():
        pid = [*line.split(","), ""][1].strip()
        try:
            users[pid] = pwd.getpwuid(os.stat("/proc/" + pid).st_uid).pw_name
        except (OSError, KeyError):
            users[pid] = "somebody"
    return users


def controllers(folder: str) -> "list[str]":
    """Studies with a controller at work here."""
    runs = os.path.join(folder, RUNS)
    return [name for name in listed(runs) if holder_of(os.path.join(runs, name, CONTROLLER_LOCK)) is not None]


def holder_of(lock: str) -> "int | None":
    """The number of the process that holds a lock, or None: by the rule of ownership.py, as a pid may be reused."""
    try:
        owner = read(lock)
        if not isinstance(owner["pid"], int):
            return None
        if owner["host"] != socket.gethostname():
            alive = time.time() - owner["heartbeat"] < STALE_SECONDS
        else:
            alive = owner["boot_id"] == boot_id() and owner["pid_started"] == started(owner["pid"])
        return owner["pid"] if alive else None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as stream:
        return stream.read().strip()


def started(pid: int) -> "str | None":
    """The kernel's start time of a live process."""
    with open(f"/proc/{pid}/stat") as stream:
        fields = stream.read().rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def is_finished(run: str) -> bool:
    try:
        is_told = read(os.path.join(run, RUN_STATUS))["state"] == "finished"
        return is_told and os.path.exists(os.path.join(run, RUN_RESULT))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def runs_in(folder: str) -> "list[str]":
    """The runs of a study, those of its grid too, by their names."""
    return listed(folder) + [TUNING + "/" + name for name in listed(os.path.join(folder, TUNING))]


def listed(folder: str) -> "list[str]":
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def read(path: str) -> Any:
    with open(path, encoding="utf-8") as stream:
        return json.load(stream)


# ---- Code and data -------------------------------------------------------------------------------------------------


def is_foreign(folder: str) -> bool:
    """Whether the folder holds files of somebody, and none that a sync or a clone of the project brought."""
    try:
        names = set(os.listdir(folder))
    except OSError:
        return False
    return bool(names - {".venv", "data", RUNS}) and MANIFEST not in names and not has_code(folder)


def prepare(request: Tree) -> Tree:
    """Make the folders that rsync writes into, and write down what comes: a cut sync leaves nothing unknown."""
    folder = folder_of(request)
    if is_foreign(folder):
        raise Refused(f"{folder} contains files of another project; choose another `folder` in remotes.yaml")
    before, files = brought(folder), request["files"]
    links = [name for name in set(before) - set(files) if os.path.islink(os.path.join(folder, name))]
    try:
        for inner in [""] + request["folders"]:
            os.makedirs(os.path.join(folder, inner), exist_ok=True)
        written = manifest(folder)
        remember(
            folder,
            {
                "commit": written.get("commit"),
                "dirty": bool(written.get("dirty")),
                "files": {**dict.fromkeys(files), **before},
            },
        )
    except OSError as error:
        advice = "choose another `folder` in remotes.yaml, or make this one usable"
        raise Refused(f"{folder}: {error.strerror}; {advice}") from error
    for name in links:  # before a folder of the same name is sent, which would be written through it
        removed_from(folder, name)
    return {
        "folder": folder,
        "controllers": controllers(folder),
        "rsync": first_line(["rsync", "--version"]),
    }


def synced(request: Tree) -> Tree:
    """Remove what an earlier sync brought and this one no longer has; remember what this one brought."""
    folder = folder_of(request)
    files = {name: digest_of(os.path.join(folder, name)) for name in request["files"]}
    removed = sum(removed_from(folder, name) for name in sorted(set(brought(folder)) - set(files)))
    remember(folder, {"commit": request["commit"], "dirty": request["dirty"], "files": files})
    return {"removed": removed}


def unsent(request: Tree) -> Tree:
    """Files of the other side that are not as the last sync brought them."""
    before, files = brought(folder_of(request)), request["files"]
    names = [name for name in set(before) | set(files) if before.get(name, "") not in (None, files.get(name))]
    return {"count": len(names) if before else 0, "names": some_of(names)}


def some_of(names: "list[str]", most: int = 5) -> str:
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return ", ".join(sorted(names)[:most] + more)


def digest_of(path: "str | os.PathLike[str]") -> "str | None":
    """Of what a file holds, or where a link points; None where neither is."""
    if os.path.islink(path):
        return "link to " + os.readlink(path)
    if not os.path.isfile(path):
        return None
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for part in iter(lambda: stream.read(2**20), b""):
            digest.update(part)
    return digest.hexdigest()


def brought(folder: str) -> Brought:
    """What earlier syncs brought. Those of earlier versions wrote down several digests of a file, or none."""
    files = manifest(folder).get("files")
    if isinstance(files, dict):
        return {name: digest if isinstance(digest, str) else None for name, digest in files.items()}
    return {str(name): None for name in files} if isinstance(files, list) else {}


def manifest(folder: str) -> Tree:
    try:
        written = read(os.path.join(folder, MANIFEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return written if isinstance(written, dict) else {}


def remember(folder: str, content: Tree) -> None:
    path = os.path.join(folder, MANIFEST)
    temporary = path + ".partial"
    if os.path.lexists(temporary):  # a remainder, or a link, through which nothing is written
        os.remove(temporary)
    with open(temporary, "x", encoding="utf-8") as stream:
        json.dump(content, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)


def holds(request: Tree) -> Tree:
    """Whether a folder of the project is here and not empty."""
    return {"holds": bool(listed(os.path.join(folder_of(request), request["inner"])))}


def place(request: Tree) -> Tree:
    """Where a study's folder is, who works in it, and what is finished."""
    path = os.path.join(folder_of(request), request["inner"])
    if not os.path.isdir(path):
        raise Refused(f"{path} is missing: nothing was run in it")
    runs = runs_in(path)
    return {
        "path": path,
        "controller": holder_of(os.path.join(path, CONTROLLER_LOCK)),
        "runs": [name for name in runs if holder_of(os.path.join(path, name, RUN_LOCK)) is not None],
        "finished": [name for name in runs if is_finished(os.path.join(path, name))],
    }


def removed_from(folder: str, name: str) -> bool:
    """Whether a file below the folder was removed, with the folders that it left empty."""
    parts = name.split("/")
    path = os.path.join(folder, *parts)
    parent = os.path.dirname(path)
    inside = os.path.join(os.path.realpath(folder), *parts[:-1])
    if os.path.isabs(name) or ".." in parts or os.path.realpath(parent) != inside:
        return False
    if not os.path.lexists(path) or (os.path.isdir(path) and not os.path.islink(path)):
        return False
    os.remove(path)
    while parent != folder and not os.listdir(parent):
        os.rmdir(parent)
        parent = os.path.dirname(parent)
    return True


# ---- oelm itself ---------------------------------------------------------------------------------------------------


def call(request: Tree) -> None:
    """A module of the synced code; its output goes straight to the connection, and it does not outlive it."""
    folder = folder_of(request)
    if not has_code(folder):  # another oelm that is installed there is not this project
        raise Refused(f"{folder}: oelm is not there yet; send it first with `oelm remote {request['name']} sync`")
    if not os.path.isfile(os.path.join(folder, "src", *request["module"].split(".")) + ".py"):
        raise Refused(f"{folder}: the oelm there is an older one; send yours with `oelm remote {request['name']} sync`")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored ones would stay ignored in what is started
    connection = os.getppid()
    child = subprocess.Popen(
        [python_of(request, folder), "-m", request["module"]] + request["arguments"],
        cwd=folder,
        env=environment_of(folder),
        stdin=subprocess.DEVNULL,
    )
    while True:
        try:
            code = child.wait(1)
            sys.exit(code if code >= 0 else 128 - code)
        except subprocess.TimeoutExpired:
            if os.getppid() != connection:
                child.terminate()
