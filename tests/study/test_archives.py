"""Archives of results: the same bytes for the same content, and of hostile ones a line and nothing else."""

import errno
import hashlib
import os
import signal
import stat
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import pytest

from oelm.machine.errors import UserError
from oelm.machine.visible import json_text, visible
from oelm.storage.files import Damaged, sealed
from oelm.study import archives
from oelm.study.archives import LIST, Archived, place_in_archive, refuse_archive, runs_folder, write_archive
from small_runs import finished

CONTENT = {
    "bench.json": b"{}\n",
    "trained-s0/config.json": b'{"format_version": 3}\n',
    "trained-s0/metrics.jsonl": b'{"step": 1}\n' * 20,
    "tuning/gefroren-\xc3\xa4-s1/config.json".encode("latin-1").decode(): b"",
}


@pytest.fixture
def folder(tmp_path):
    for name, content in CONTENT.items():
        (tmp_path / "runs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "runs" / name).write_bytes(content)
    return tmp_path / "runs"


@pytest.fixture
def archive(folder, tmp_path):
    write_archive(tmp_path / "results.zip", files_in(folder), study="small")
    return tmp_path / "results.zip"


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """Where archives are unpacked."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


def files_in(folder: Path) -> dict[str, Path]:
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}


def contents_of(folder: Path) -> dict[str, bytes]:
    return {name: path.read_bytes() for name, path in files_in(folder).items()}


def forged(path: Path, members: list[tuple[str, bytes]], *, listing: bytes | None = None) -> Path:
    """An archive with every header, checksum and seal right, whatever its files are called."""
    listed = {name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in members}
    said = (json_text(sealed({"format_version": 1, "study": "s", "files": listed})) + "\n").encode()
    return zipped(path, *members, (LIST, said if listing is None else listing))


def zipped(path: Path, *members: tuple[zipfile.ZipInfo | str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that occurs twice
        for name, content in members:
            opened.writestr(name, content)
    return path


def refused(path: Path, temporary: Path, reason: str = "") -> str:
    """The one line of refusal; nothing is left, and nothing was written anywhere else."""
    around = sorted(temporary.parent.rglob("*"))
    with pytest.raises(UserError) as caught:
        runs_folder(path)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{path}: "), line
    assert reason in line
    assert sorted(temporary.parent.rglob("*")) == around
    assert len(line) < 1_000
    return line


# ---- Round trip ----------------------------------------------------------------------------------------------------


def test_what_went_in_comes_out(archive, folder):
    found = contents_of(runs_folder(archive))
    assert found.pop(LIST)
    assert found == contents_of(folder)


def test_other_content_under_the_same_name_and_of_the_same_size_is_found(tmp_path, temporary):
    """Although every checksum of the zip is right."""
    entry = {"bytes": 4, "sha256": hashlib.sha256(b"1.23").hexdigest()}
    listing = json_text(sealed({"format_version": 1, "study": "s", "files": {"a": entry}})).encode()
    refused(zipped(tmp_path / "x.zip", ("a", b"1.13"), (LIST, listing)), temporary, "'a' is not what")


def test_any_program_opens_it(archive, tmp_path):
    with zipfile.ZipFile(archive) as opened:
        assert opened.testzip() is None
        assert {member.compress_type for member in opened.infolist()} == {zipfile.ZIP_DEFLATED}
        assert opened.namelist() == [*sorted(CONTENT), LIST]
        opened.extractall(tmp_path / "by others")
    assert contents_of(tmp_path / "by others").keys() - {LIST} == CONTENT.keys()


def test_equal_content_has_equal_bytes(archive, folder, tmp_path):
    for path in sorted(folder.rglob("*"), reverse=True):
        os.utime(path, (1e9, 1e9))
        path.chmod(0o700)
    write_archive(tmp_path / "again.zip", dict(reversed(files_in(folder).items())), study="small")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()


def test_it_is_written_whole_or_not_at_all(archive, folder, tmp_path):
    before = archive.read_bytes()
    files = files_in(folder) | {"trained-s0/unreadable": tmp_path}  # a folder cannot be read as a file
    with pytest.raises(OSError, match="Is a directory"):
        write_archive(archive, files, study="small")
    assert archive.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results.zip", "runs", "temporary"]


KILLED = """
import os, signal, sys
from pathlib import Path
from oelm.study import archives
archives._append = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
archives.write_archive(Path(sys.argv[1]), {"a": Path(sys.argv[2])}, study="small")
"""


def test_what_a_killed_one_left_is_gone_after_the_next_of_that_name(archive, folder, tmp_path):
    def remainders() -> list[str]:
        return sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".partial-"))

    done = finished([sys.executable, "-c", KILLED, str(archive), str(folder / "bench.json")])
    assert done.returncode == -signal.SIGKILL
    (killed,) = remainders()
    others = [f".partial-{os.getppid()}-results.zip", killed.replace("results", "other")]
    for name in others:
        (tmp_path / name).write_bytes(b"theirs")
    write_archive(archive, files_in(folder), study="small")
    assert remainders() == sorted(others)
    assert runs_folder(archive).is_dir()


def test_it_is_unpacked_once_and_again_when_it_is_another(archive, folder, temporary):
    first = runs_folder(archive)
    assert runs_folder(archive) == first
    (folder / "bench.json").write_bytes(b'{"another": 1}')
    write_archive(archive, files_in(folder), study="small")
    assert (runs_folder(archive) / "bench.json").read_bytes() == b'{"another": 1}'
    assert stat.S_IMODE(first.stat().st_mode) == 0o700


def test_what_is_said_of_it_names_the_archive(archive):
    inside = runs_folder(archive) / "trained-s0"
    assert visible(f"{inside}: damaged") == f"{archive}/trained-s0: damaged"
    assert json_text({"path": str(inside)}, indent=None) == f'{{"path": "{archive}/trained-s0"}}'


# ---- In the place of a folder --------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there_is_found_in_the_archive_beside_it(archive, folder, tmp_path):
    archive.rename(tmp_path / "runs.zip")
    assert place_in_archive(folder) is None  # the folder wins
    assert runs_folder(folder) == folder
    folder.rename(tmp_path / "elsewhere")
    assert place_in_archive(folder / "trained-s0") == Archived(
        tmp_path / "runs.zip", archives.PurePosixPath("trained-s0")
    )
    assert (runs_folder(folder) / "bench.json").read_bytes() == CONTENT["bench.json"]
    assert (runs_folder(folder / "trained-s0") / "config.json").is_file()
    assert (runs_folder(tmp_path / "runs.zip" / "trained-s0") / "config.json").is_file()
    assert runs_folder(tmp_path / "neither") == tmp_path / "neither"


def test_nothing_is_written_into_an_archive(archive, folder, tmp_path):
    refuse_archive(folder)
    refuse_archive(tmp_path / "not there yet")
    with pytest.raises(UserError, match=r"results\.zip: is an archive, which is read-only"):
        refuse_archive(archive)


@pytest.mark.parametrize("reads_or_writes", [runs_folder, refuse_archive])
@pytest.mark.parametrize("name", ["typo.zip", "typo.zip/trained-s0"])
def test_an_archive_that_is_not_there_is_no_new_folder(reads_or_writes, name, tmp_path):
    with pytest.raises(UserError, match=r"typo\.zip: no such archive$"):
        reads_or_writes(tmp_path / name)
    (tmp_path / "typo.zip").mkdir()  # a folder may be called what it will
    reads_or_writes(tmp_path / "typo.zip")
    (tmp_path / "notes.txt").write_text("words")
    with pytest.raises(UserError, match="is neither a folder of runs nor an archive"):
        runs_folder(tmp_path / "notes.txt")


# ---- Hostile -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "../out.json", "/tmp/out.json", "a/../b", "..", "./a", "a//b", "a/", "..\\out", "C:/out", "~/out", "a/b/c/d",
        ".hidden", "-option", "a\nb", "a\x00b", "\x1b[2J", "a\u202eb", "x" * 300, "a/" + "\u00e4" * 180,
    ],
)  # fmt: skip
def test_a_name_that_leads_anywhere_else_is_refused(tmp_path, temporary, name):
    line = refused(forged(tmp_path / "x.zip", [(name, b"content")]), temporary)
    assert "\x1b" not in line


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["a", "a"], "its files are not those"),
        (["a", "a/b"], "cannot be a file here"),
        (["archive.json", "b"], "not a file of a study"),
    ],
)
def test_two_files_of_one_name_are_refused(tmp_path, temporary, names, reason):
    refused(forged(tmp_path / "x.zip", [(name, b"content") for name in names]), temporary, reason)


@pytest.mark.parametrize(
    "listing",
    [b"", b'{"format_version": 1, "study": "s", "files": {}}',
     json_text(sealed({"format_version": 1, "study": "s", "files": {}})).encode(),
     json_text(sealed({"format_version": 1, "study": "s", "files": {"a": {"bytes": 7}}})).encode(),
     json_text(sealed({"format_version": 99, "study": "s", "files": {}})).encode()],
)  # fmt: skip
def test_a_list_that_is_not_of_its_files_is_refused(tmp_path, temporary, listing):
    refused(forged(tmp_path / "x.zip", [("a", b"content")], listing=listing), temporary)


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


def test_foreign_archives_are_refused(tmp_path, temporary):
    listing = json_text(sealed({"format_version": 1, "study": "s", "files": {}})).encode()
    bomb = zipped(tmp_path / "a.zip", ("a", bytes(50_000_000)), (LIST, listing))
    assert bomb.stat().st_size < 100_000
    for path in (
        bomb,
        zipped(tmp_path / "b.zip", ("trained-s0/config.json", b"{}")),
        zipped(tmp_path / "c.zip", (link("trained-s0"), b"/etc"), ("trained-s0/passwd", b"x"), (LIST, listing)),
        zipped(tmp_path / "d.zip"),
    ):
        refused(path, temporary)
    (tmp_path / "e.zip").write_bytes(b"")
    (tmp_path / "f.zip").write_bytes(b"PK\3\4" * 100)
    (tmp_path / "g.zip").write_bytes(os.urandom(10_000))
    for name in "efg":
        refused(tmp_path / f"{name}.zip", temporary)


def test_a_file_larger_than_the_list_says_is_refused_before_it_is_unpacked(tmp_path, temporary):
    entry = {"bytes": 4, "sha256": hashlib.sha256(bytes(4)).hexdigest()}
    listing = json_text(sealed({"format_version": 1, "study": "s", "files": {"a": entry}})).encode()
    refused(zipped(tmp_path / "x.zip", ("a", bytes(50_000_000)), (LIST, listing)), temporary, "not as large as")


def test_more_than_the_disk_has_is_refused_before_anything_is_written(archive, temporary, monkeypatch):
    usage = archives.shutil.disk_usage(temporary)
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda folder: usage._replace(free=4096))
    refused(archive, temporary, "choose another folder with TMPDIR")


def test_a_disk_that_is_full_before_the_list_is_read_is_named(archive, temporary, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(archives.Path, "write_bytes", full)
    with pytest.raises(UserError, match=rf"^{temporary}/oelm-archive-[^:]*: disk full: "):
        runs_folder(archive)


def test_too_many_files_are_neither_written_nor_read(archive, folder, temporary, tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_FILES", 4)
    with pytest.raises(UserError, match="an archive takes at most 4"):
        write_archive(tmp_path / "more.zip", files_in(folder), study="small")
    refused(archive, temporary, "at most 4 are read")


def test_a_pipe_holds_nobody_up(tmp_path, temporary):
    os.mkfifo(tmp_path / "x.zip")
    with pytest.raises(Damaged, match="not a regular file"):
        archives.unpack(tmp_path / "x.zip", temporary)


def test_every_cut_is_found(archive, temporary):
    content = archive.read_bytes()
    for length in {*range(0, len(content), 97), len(content) - 1}:
        archive.write_bytes(content[:length])
        refused(archive, temporary)


def test_every_flipped_bit_is_found_or_changes_nothing(archive, folder):
    """One bit of every fourth byte, in headers, content, list, directory and end. A date, say, is not looked at."""
    content, found = archive.read_bytes(), 0
    for place in range(0, len(content), 4):
        changed = bytearray(content)
        changed[place] ^= 1 << place // 4 % 8
        archive.write_bytes(changed)
        target = Path(tempfile.mkdtemp())
        try:
            archives.unpack(archive, target)
        except UserError:
            found += 1
        else:
            assert {name: data for name, data in contents_of(target).items() if name != LIST} == contents_of(folder)
    assert found > len(content) / 4 / 2


def test_a_damaged_archive_is_unpacked_once_until_it_changes(archive, monkeypatch):
    """Whoever watches a folder asks for it every few seconds."""
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-200])
    times = []
    unpack = archives.unpack
    monkeypatch.setattr(archives, "unpack", lambda *given: times.append(1) or unpack(*given))
    lines = set()
    for _ in range(3):
        with pytest.raises(Damaged) as damage:
            runs_folder(archive)
        lines.add(str(damage.value))
    assert len(times) == len(lines) == 1
    archive.write_bytes(whole)
    assert contents_of(runs_folder(archive)) == CONTENT | {LIST: (runs_folder(archive) / LIST).read_bytes()}


def test_a_link_becomes_a_file(tmp_path, temporary):
    """Whatever the zip says of a member, what is written is a file with the content that the list names."""
    content = b"/etc"
    entry = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    listing = json_text(sealed({"format_version": 1, "study": "s", "files": {"trained-s0": entry}})).encode()
    folder = runs_folder(zipped(tmp_path / "x.zip", (link("trained-s0"), content), (LIST, listing)))
    assert not (folder / "trained-s0").is_symlink()
    assert (folder / "trained-s0").read_bytes() == content
