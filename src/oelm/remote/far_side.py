"""What runs on the other side before oelm is there: sent as text to `python3 -`, with what to do as the last line.

Standard library only, and nothing newer than Python 3.6. A text that was cut on its way lacks its last line or does
not parse: then nothing happens.
"""

import json
import os
import shutil
import signal
import subprocess
import sys

MARK = "\x1eoelm "  # before an answer: a login shell may have printed before it
# Names that the package has too; a test holds them together.
MANIFEST = ".oelm-synced.json"  # runs take their commit from it
RUNS, CONTROLLER_LOCK = "runs", "controller.lock"
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
    import oelm, oelm.cli, oelm.experiments.controller
    facts["oelm"] = oelm.__version__
except Exception as error:
    facts["oelm_error"] = (str(error) or type(error).__name__).splitlines()[0]
print(json.dumps(facts))
"""


class Refused(Exception):
    """Said to the user in one line."""


def main(request):
    actions = {"facts": facts, "prepare": prepare, "synced": synced, "place": place, "call": call}
    try:
        answer = actions[request["action"]](request)
    except (Refused, OSError) as error:
        sys.stderr.write(f"oelm: {error}\n")
        sys.exit(2)
    if answer is not None:
        sys.stdout.write(MARK + json.dumps(answer) + "\n")


def folder_of(request):
    return os.path.join(os.path.expanduser("~"), os.path.expanduser(request["folder"]))


def python_of(request, folder):
    """The Python of the entry, relative to the folder; otherwise the folder's own environment; otherwise any."""
    chosen = request.get("python")
    if chosen is None:
        own = os.path.join(folder, ".venv", "bin", "python")
        return own if os.path.exists(own) else "python3"
    chosen = os.path.expanduser(chosen)
    return os.path.join(folder, chosen) if "/" in chosen else chosen


def environment_of(folder):
    """What was sent is what runs, installed or not."""
    environment = dict(os.environ)
    source = os.path.join(folder, "src")
    if has_code(folder):
        before = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = source + (os.pathsep + before if before else "")
    environment["PYTHONUNBUFFERED"] = "1"
    return environment


def has_code(folder):
    return os.path.isdir(os.path.join(folder, "src", "oelm"))


# ---- What is there -------------------------------------------------------------------------------------------------


def facts(request):
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


def probe(python, folder, environment, seconds):
    try:
        done = subprocess.run(  # noqa: UP022 - newer than Python 3.6
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


def output_of(command):
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=20, check=True
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        return ""


def first_line(command):
    return (output_of(command).splitlines() or [""])[0]


def users_of(processes):
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


def controllers(folder):
    """Studies with a controller at work here."""
    found = []
    runs = os.path.join(folder, RUNS)
    for name in sorted(os.listdir(runs)) if os.path.isdir(runs) else []:
        if controller_in(os.path.join(runs, name)):
            found.append(name)
    return found


def controller_in(folder):
    """The process that works on a study in this folder, or None."""
    try:
        with open(os.path.join(folder, CONTROLLER_LOCK)) as stream:
            owner = json.load(stream)
        os.kill(int(owner["pid"]), 0)
        return owner["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


# ---- Code and data -------------------------------------------------------------------------------------------------


def is_foreign(folder):
    """Whether the folder holds files of somebody, and none that a sync or a clone of the project brought."""
    try:
        names = set(os.listdir(folder))
    except OSError:
        return False
    return bool(names - {".venv", "data", RUNS}) and MANIFEST not in names and not has_code(folder)


def prepare(request):
    """Make the folders that rsync writes into."""
    folder = folder_of(request)
    if is_foreign(folder):
        raise Refused(f"{folder} holds files that are not this project's; choose another `folder` in remotes.yaml")
    try:
        for inner in [""] + request["folders"]:
            os.makedirs(os.path.join(folder, inner), exist_ok=True)
        if not os.path.exists(os.path.join(folder, MANIFEST)):
            remember(folder, {"commit": None, "dirty": False, "files": []})  # ours, also if this sync is cut
    except OSError as error:
        advice = "choose another `folder` in remotes.yaml, or make this one usable"
        raise Refused(f"{folder}: {error.strerror}; {advice}") from error
    return {"folder": folder, "controllers": controllers(folder), "rsync": first_line(["rsync", "--version"])}


def synced(request):
    """Remove what an earlier sync brought and this one no longer has; remember what this one brought."""
    folder = folder_of(request)
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path, encoding="utf-8") as stream:
            before = [str(name) for name in json.load(stream)["files"]]
    except (OSError, ValueError, KeyError, TypeError):
        before = []
    gone = sorted(set(before) - set(request["files"]))
    removed = sum(removed_from(folder, name) for name in gone)
    remember(folder, {key: request[key] for key in ("commit", "dirty", "files")})
    return {"removed": removed}


def remember(folder, content):
    path = os.path.join(folder, MANIFEST)
    temporary = path + ".partial"
    with open(temporary, "w", encoding="utf-8") as stream:
        json.dump(content, stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, path)


def place(request):
    """Where a folder of the project is, and whether a study is being run in it."""
    path = os.path.join(folder_of(request), request["inner"])
    if not os.path.isdir(path):
        raise Refused(f"{path} is not there: nothing was run in it")
    return {"path": path, "controller": controller_in(path)}


def removed_from(folder, name):
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


def call(request):
    """A module of the synced code; its output goes straight to the connection, and it does not outlive it."""
    folder = folder_of(request)
    if not os.path.isdir(folder):
        raise Refused(f"{folder} is not there yet; `oelm remote {request['name']} sync` makes it")
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
