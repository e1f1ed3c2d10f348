"""What a power failure may leave of a run: its system calls recorded with strace, and replayed on a disk that forgets.

The model is harsher than any file system we know of. A file keeps what was flushed; the rest is gone, torn or zeros. A
name made, changed or removed in a folder survives only if that folder was flushed afterwards, or if everything done to
names before it survived too; then it may survive although the data behind it did not.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from warm import WarmServer, wait_until

CALLS = (
    "open,openat,creat,write,writev,pwrite64,pwritev,lseek,ftruncate,truncate,fallocate,rename,renameat,renameat2,"
    "link,linkat,symlink,symlinkat,mkdir,mkdirat,unlink,unlinkat,rmdir,fsync,fdatasync,copy_file_range,sendfile"
)
PROMISES = "/promised/"  # where the recorded process removes a folder that is not there, to say what it has done

# Runs in the recorded process. A save and a seal are promises once their functions have returned.
SAYING_WHAT_IS_DONE = f"""
import contextlib, os, oelm.run.training.driver as driver
save_checkpoint, seal_run = driver.save_checkpoint, driver.seal_run

def promised(words):
    with contextlib.suppress(FileNotFoundError):
        os.rmdir("{PROMISES}" + words)

def saying_save(directory, step, **parts):
    save_checkpoint(directory, step, **parts)
    promised(f"saved {{step}}")

def saying_seal(*arguments, **options):
    seal_run(*arguments, **options)
    promised("sealed")

driver.save_checkpoint, driver.seal_run = saying_save, saying_seal
"""

# The process starts its own watcher, permits it, and waits for it.
WATCHED = """
import ctypes, os, subprocess, time
ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
subprocess.Popen([*{strace}, "-p", str(os.getpid())], stderr=subprocess.DEVNULL)
for _ in range(3000):
    if "TracerPid:\\t0\\n" not in open("/proc/self/status").read():
        break
    time.sleep(0.01)
else:
    raise SystemExit("strace does not trace this process")
"""


# ---- Recording -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A system call that succeeded, or a promise."""

    name: str
    words: tuple[str, ...]
    result: str


def can_record() -> bool:
    """Whether strace is here and may trace."""
    found = shutil.which("strace")
    return found is not None and subprocess.run([found, "-o", os.devnull, "true"], capture_output=True).returncode == 0


def recorded(server: WarmServer, words: list[str], trace: Path, *, patch: str = "") -> list[Call]:
    """`oelm WORDS`, a process of its own, under strace from before its first word."""
    strace = ["strace", "-f", "-y", "-xx", "-s", "100000000", "-e", f"trace={CALLS}", "-o", str(trace)]
    ended = server.run(*words, patch=patch + SAYING_WHAT_IS_DONE + WATCHED.format(strace=strace))
    assert ended.code == 0, ended.text
    wait_until(lambda: "+++ exited with 0 +++" in trace.read_text(encoding="ascii")[-200:])
    with open(trace, encoding="ascii") as lines:
        return list(_calls(lines))


def _calls(lines: Iterator[str]) -> Iterator[Call]:
    begun: dict[str, str] = {}  # by thread: what another thread's line came between
    for line in lines:
        thread, _, text = line.rstrip("\n").partition(" ")
        text = text.strip()
        if text.endswith("<unfinished ...>"):
            begun[thread] = text.removesuffix("<unfinished ...>").rstrip()
            continue
        if resumed := re.match(r"<\.\.\. \w+ resumed>", text):
            text = begun.pop(thread) + text[resumed.end() :]
        if found := re.fullmatch(r"(\w+)\((.*)\) += (.+)", text):
            call = Call(found[1], tuple(found[2].split(", ")), found[3])
            if not call.result.startswith("-1") or _is_promise(call):
                yield call


def _is_promise(call: Call) -> bool:
    return call.name == "rmdir" and _text(call.words[0]).decode().startswith(PROMISES)


def _text(quoted: str) -> bytes:
    """What a string of hexadecimal escapes stands for."""
    assert quoted[0] == quoted[-1] == '"', quoted
    return bytes.fromhex(quoted[1:-1].replace("\\x", ""))


def _opened(word: str) -> Path:
    """The file behind a descriptor: 3</its/path>, in escapes."""
    found = re.search(r"<((?:\\x[0-9a-f]{2})+)>", word)
    return Path(os.fsdecode(bytes.fromhex(found[1].replace("\\x", "")))) if found else Path("/nowhere")


# ---- The disk ------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class File:
    now: bytes = b""
    flushed: bytes = b""

    def unflushed(self, kept: str) -> bytes:
        """What is left if what was not flushed is lost, torn in its middle, turned into zeros, or kept by luck."""
        if kept == "all" or self.now == self.flushed:
            return self.now
        if kept == "none":
            return self.flushed
        safe = len(self.flushed) if self.now.startswith(self.flushed) else 0
        half = safe + (len(self.now) - safe) // 2
        return self.now[:half] if kept == "half" else self.now[:safe] + bytes(len(self.now) - safe)


@dataclass(eq=False)
class Folder:
    now: dict[str, File | Folder] = field(default_factory=dict)
    flushed: dict[str, File | Folder] = field(default_factory=dict)


Names = dict[Folder, dict[str, File | Folder]]
Tree = dict[str, bytes | None]  # path -> content, None of a folder


@dataclass(frozen=True, eq=False)
class Change:
    """Of names: one goes, one comes, or both in one move."""

    node: File | Folder
    gone: tuple[Folder, str] | None = None
    come: tuple[Folder, str] | None = None

    @property
    def folders(self) -> set[Folder]:
        return {place[0] for place in (self.gone, self.come) if place}

    def apply(self, names: Names) -> None:
        if self.gone:
            names[self.gone[0]].pop(self.gone[1], None)
        if self.come:
            names[self.come[0]][self.come[1]] = self.node


@dataclass
class Disk:
    """Everything below one folder, as programs see it and as it would be found after a power failure."""

    path: Path
    root: Folder = field(default_factory=Folder)
    pending: list[Change] = field(default_factory=list)  # changes of names whose folders were not flushed since
    positions: dict[tuple[str, str], int] = field(default_factory=dict)  # where descriptors write next

    # -- what programs do --------------------------------------------------------------------------------------------

    def do(self, call: Call) -> bool:
        """Whether a call changed what a power failure would leave."""
        name, words = call.name, call.words
        if name in ("open", "openat", "creat"):
            return self._open(call)
        if name in ("write", "pwrite64"):
            return self._write(call)
        if name == "lseek":
            self.positions[self._descriptor(words[0])] = int(call.result)
            return False
        if name == "ftruncate" and (file := self._node(_opened(words[0]))):
            file.now = file.now[: int(words[1])].ljust(int(words[1]), b"\0")
            return True
        if name in ("fsync", "fdatasync"):
            return self._flush(self._node(_opened(words[0])))
        if name in ("mkdir", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2"):
            return self._rename(call)
        assert not any(str(self.path) in str(_opened(word)) for word in words), f"{name} is not replayed"
        return False

    def _open(self, call: Call) -> bool:
        path, flags = _opened(call.result), next((word for word in call.words if word.startswith("O_")), "")
        if not self._is_here(path) or call.result.endswith("(deleted)") or "O_DIRECTORY" in flags:
            return False
        made = self._node(path) is None
        assert not made or "O_CREAT" in flags, f"{path} came from nowhere"
        if made:
            folder, name = self._place(path)
            self._change(Change(File(), come=(folder, name)))
        file = self._node(path)
        emptied = isinstance(file, File) and "O_TRUNC" in flags and file.now != b""
        if emptied:
            file.now = b""
        self.positions[self._descriptor(call.result)] = -1 if "O_APPEND" in flags else 0
        return made or emptied

    def _write(self, call: Call) -> bool:
        file, data = self._node(_opened(call.words[0])), None
        if not isinstance(file, File) or call.words[0].endswith("(deleted)"):
            return False
        data = _text(call.words[1])[: int(call.result)]
        key = self._descriptor(call.words[0])
        place = int(call.words[3]) if call.name == "pwrite64" else self.positions.get(key, 0)
        place = len(file.now) if place == -1 else place
        file.now = file.now[:place].ljust(place, b"\0") + data + file.now[place + len(data) :]
        if call.name == "write":
            self.positions[key] = place + len(data)
        return True

    def _flush(self, node: File | Folder | None) -> bool:
        if isinstance(node, File):
            changed, node.flushed = node.flushed != node.now, node.now
            return changed
        if node is None:
            return False
        touched, durable = {node}, []
        for change in reversed(self.pending):  # a move between folders takes along what was done in both before it
            if change.folders & touched:
                touched |= change.folders
                durable.insert(0, change)
        for change in durable:
            change.apply({folder: folder.flushed for folder in change.folders})
        removed = {change.node for change in durable if change.come is None}
        self.pending = [each for each in self.pending if each not in durable and not each.folders <= removed]
        return bool(durable)

    def _rename(self, call: Call) -> bool:
        paths = list(self._paths(call))
        if not self._is_here(paths[0]):
            return False
        if call.name == "mkdir":
            self._change(Change(Folder(), come=self._place(paths[0])))
        else:
            come = self._place(paths[1]) if len(paths) > 1 else None
            self._change(Change(self._node(paths[0]), gone=self._place(paths[0]), come=come))
        return True

    def _change(self, change: Change) -> None:
        change.apply({folder: folder.now for folder in change.folders})
        self.pending.append(change)

    def _paths(self, call: Call) -> Iterator[Path]:
        """Those a call names; where it names an opened folder before, relative to that."""
        base = Path("/")
        for word in call.words:
            if word.startswith('"'):
                yield base / os.fsdecode(_text(word))
            elif "<" in word:
                base = _opened(word)

    def _descriptor(self, word: str) -> tuple[str, str]:
        return word.partition("<")[0], str(_opened(word))

    def _is_here(self, path: Path) -> bool:
        return self.path in path.parents

    def _place(self, path: Path) -> tuple[Folder, str]:
        return self._node(path.parent), path.name

    def _node(self, path: Path) -> File | Folder | None:
        if path == self.path:
            return self.root
        if not self._is_here(path):
            return None
        node = self.root
        for name in path.relative_to(self.path).parts:
            node = node.now.get(name) if isinstance(node, Folder) else None
        return node

    # -- what a power failure leaves -----------------------------------------------------------------------------------

    def seen(self) -> Tree:
        """As programs see it."""
        return self._left(len(self.pending), kept="all")

    def crashes(self) -> Iterator[Tree]:
        """With the first of the pending changes of names, none to all; and unflushed data in each way."""
        for surviving in range(len(self.pending) + 1):
            for kept in ("none", "half", "zeros", "all"):
                yield self._left(surviving, kept=kept)

    def _left(self, surviving: int, *, kept: str) -> Tree:
        changes = self.pending[:surviving]
        names = {folder: dict(folder.flushed) for change in changes for folder in change.folders}
        for change in changes:
            change.apply(names)
        tree: Tree = {}

        def walk(folder: Folder, prefix: str) -> None:
            for name, node in names.get(folder, folder.flushed).items():
                tree[prefix + name] = None if isinstance(node, Folder) else node.unflushed(kept)
                if isinstance(node, Folder):
                    walk(node, f"{prefix}{name}/")

        walk(self.root, "")
        return tree


# ---- Crash states ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crash:
    """What is left, and what the run had promised by then."""

    tree: Tree
    saved: int  # the step of the last checkpoint that was saved
    sealed: bool


def crash_states(calls: list[Call], disk: Disk) -> Iterator[Crash]:
    """Every distinct state that a failure after some call may leave, given the promises made by then."""
    saved, sealed, known = 0, False, set()
    for call in calls:
        if _is_promise(call):
            words = _text(call.words[0]).decode().removeprefix(PROMISES).split()
            saved, sealed = (int(words[1]), sealed) if words[0] == "saved" else (saved, True)
        elif not disk.do(call):
            continue
        for tree in disk.crashes():
            state = (saved, sealed, frozenset(tree.items()))
            if state not in known:
                known.add(state)
                yield Crash(tree, saved, sealed)


def build(tree: Tree, folder: Path) -> None:
    """A tree as real files."""
    folder.mkdir(parents=True)
    for name, content in tree.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)


def stored(folder: Path) -> Tree:
    """Real files as a tree."""
    found = {path: path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    return {name: None if path.is_dir() else path.read_bytes() for path, name in found.items()}
