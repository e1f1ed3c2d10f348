"""Preparation: whole or absent under real kills, bounded memory, the same bytes on any number of workers."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from oelm.data import prepare as module
from oelm.data.corpora import held_out, open_corpus, split_documents
from oelm.data.folders import check_digests
from oelm.data.prepare import Preparation, prepare
from oelm.data.stories import stories
from oelm.data.tokenizer import load_tokenizer
from oelm.data.tokens import check_tokens, open_tokens
from oelm.machine.errors import UserError

STORIES = {"stories": 600, "tokenizer": "bpe:300"}
PREPARE = f"""
import os, signal, sys
from pathlib import Path
from oelm.storage import whole_folder
from oelm.data import prepare as module
from oelm.machine.errors import UserError

out, moment = Path(sys.argv[1]), sys.argv[2]
reports = 0

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def watch(progress):
    global reports
    reports += 1
    print(progress.stage, flush=True)
    if moment.isdigit() and reports == int(moment):
        die()

if moment in ("publish_folder", "write_json"):
    setattr(module, moment, die)
if moment == "fsync_folder":
    whole_folder.fsync_folder = die
if moment == "renamed":
    whole_folder.shutil.rmtree = die
try:
    module.prepare("stories", out=out, stories={STORIES["stories"]}, tokenizer="{STORIES["tokenizer"]}", progress=watch,
                   force="--force" in sys.argv)
except UserError as error:
    sys.exit(str(error))
"""
MEASURE = """
import re, sys
from pathlib import Path
from oelm.data.prepare import prepare
prepare(sys.argv[1], out=Path(sys.argv[2]), tokenizer=sys.argv[3], gpt2_folder=Path(sys.argv[4]))
print(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("reference") / "stories"
    prepare("stories", out=out, **STORIES)
    return out


@pytest.fixture(scope="module")
def reference_digest(reference) -> str:
    return open_tokens(reference).digest


def leftovers(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.name.startswith(".partial-"))


def written_stories(path: Path, count: int) -> Path:
    path.write_text("\n<|endoftext|>\n".join(stories(7, count)), encoding="utf-8")
    return path


def assert_whole_or_absent(out: Path, digest: str) -> None:
    if not out.exists():
        with pytest.raises(UserError, match="oelm prepare"):
            open_tokens(out)
        return
    data = open_tokens(out)
    check_tokens(data, seq_len=16, vocabulary=data.vocabulary)
    check_digests(data)
    load_tokenizer(data.tokenizer_folder)
    assert data.digest == digest


@pytest.mark.parametrize("tokenizer", ["gpt2", "bpe:300"])
def test_documents_round_trip(tmp_path, gpt2_folder, tokenizer):
    texts = [*stories(1, 60), "naïve 漢字 🙂", "the mark <|end" + "oftext|> split", "  spaces  \n\nand lines"]
    (tmp_path / "in.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in [*texts, "", " \n"]))
    out = tmp_path / "dätä 数据 🙂 it's" / "o u t"
    vocabulary = shutil.copytree(gpt2_folder, tmp_path / "gpt 2 🙂")
    manifest = prepare(str(tmp_path / "in.jsonl"), out=out, tokenizer=tokenizer, gpt2_folder=Path(vocabulary))
    data = open_tokens(out)
    made = load_tokenizer(out / "tokenizer")
    found = []
    for name, ids in data.splits.items():
        ends = np.flatnonzero(ids == made.end_of_text)
        assert ends[-1] == len(ids) - 1
        documents = [made.decode(part[: -1 or None]) for part in np.split(ids, ends + 1)[:-1]]
        assert len(documents) == manifest["splits"][name]["documents"]
        assert sum(len(text.encode()) for text in documents) == manifest["splits"][name]["text_bytes"]
        found += documents
    assert sorted(found) == sorted(texts)
    assert sum(entry["empty_dropped"] for entry in manifest["splits"].values()) == 2


def test_a_mark_written_in_a_json_document_is_text(tmp_path):
    texts = [f"text {number} with <|endoftext|> inside" for number in range(50)]
    (tmp_path / "in.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    manifest = prepare(str(tmp_path / "in.jsonl"), out=tmp_path / "out", tokenizer="bpe:257")
    assert sum(entry["documents"] for entry in manifest["splits"].values()) == 50
    data = open_tokens(tmp_path / "out")
    assert sum(int((ids == manifest["end_of_text"]).sum()) for ids in data.splits.values()) == 50


def test_splits_on_disk_are_the_splits_of_the_corpus(reference):
    corpus = open_corpus("stories", stories=STORIES["stories"])
    made, data = load_tokenizer(reference / "tokenizer"), open_tokens(reference)
    for split in ("train", "tune", "val"):
        texts = [document.text for name, document in split_documents(corpus, held_out(corpus)) if name == split]
        assert np.array_equal(data.splits[split], made.encode_documents(texts))


def test_the_same_command_gives_the_same_bytes_on_any_number_of_workers(tmp_path, reference_digest):
    for workers in (1, 3):
        assert prepare("stories", out=tmp_path / f"{workers}", workers=workers, **STORIES)["digest"] == reference_digest
    tokenizers = {(tmp_path / name / "tokenizer" / "tokenizer.json").read_bytes() for name in ("1", "3")}
    assert len(tokenizers) == 1


def test_a_vocabulary_above_65536_is_stored_in_32_bits():
    assert module.dtype_for(65_536) == np.dtype("<u2")
    assert module.dtype_for(65_537) == np.dtype("<u4")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokenizer": "bpe:310"}, "tokenizer is bpe:300, not bpe:310"),
        ({"seed": 1}, "source is 600 embedded stories, seed 0, not 600 embedded stories, seed 1"),
        ({"stories": 500}, "not 500 embedded stories"),
    ],
)
def test_other_settings_in_the_same_folder_are_refused_until_forced(tmp_path, reference, change, said):
    out = Path(shutil.copytree(reference, tmp_path / "out"))
    with pytest.raises(UserError) as error:
        prepare("stories", out=out, **(STORIES | change))
    assert said in str(error.value)
    assert "--force" in str(error.value)
    digest = open_tokens(reference).digest
    assert open_tokens(out).digest == digest
    assert prepare("stories", out=out, force=True, **(STORIES | change))["digest"] != digest
    assert os.listdir(tmp_path) == ["out"]


def test_a_changed_source_file_is_another_dataset(tmp_path):
    file = written_stories(tmp_path / "in.txt", 400)
    prepare(str(file), out=tmp_path / "out", tokenizer="bpe:300")
    written_stories(file, 401)
    with pytest.raises(
        UserError, match=r"contains another dataset .* when its name, size or modification time differs"
    ):
        prepare(str(file), out=tmp_path / "out", tokenizer="bpe:300")


def test_progress_reaches_the_total(tmp_path):
    told: list[Preparation] = []
    file = written_stories(tmp_path / "in.txt", 1000)
    prepare(str(file), out=tmp_path / "out", tokenizer="bpe:300", progress=told.append)
    encoding = [progress for progress in told if progress.stage == "encoding"]
    assert {progress.stage for progress in told} == {"training the tokenizer", "encoding", "prepared"}
    assert len(encoding) > 5
    assert [progress.bytes_read for progress in encoding] == sorted(progress.bytes_read for progress in encoding)
    assert encoding[-1].total_bytes == file.stat().st_size
    assert 0.99 <= encoding[-1].bytes_read / file.stat().st_size <= 1
    assert encoding[-1].documents == 1000


def test_wrong_arguments_are_found_before_anything_is_written(tmp_path):
    for options, said in (({"tokenizer": "gpt9"}, "gpt9"), ({"workers": 0}, "workers"), ({"stories": -3}, "-3")):
        with pytest.raises(UserError, match=said):
            prepare("stories", out=tmp_path / "out", **options)
    assert os.listdir(tmp_path) == []


def test_bad_text_leaves_nothing_behind(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"fine text\n<|endoftext|>\n" * 50_000 + b"\xff")
    with pytest.raises(UserError, match="not UTF-8 at byte 1200000"):
        prepare(str(tmp_path / "in"), out=tmp_path / "out", tokenizer="bpe:257")
    assert os.listdir(tmp_path) == ["in"]


def test_a_split_without_text_is_refused(tmp_path):
    for name, text in (("train", "some text"), ("tune", "more"), ("val", "other"), ("test", " \n<|endoftext|>\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    with pytest.raises(UserError, match="no text for test"):
        prepare(str(tmp_path), out=tmp_path / "out", tokenizer="bpe:257")
    (tmp_path / "test.txt").unlink()
    assert list(prepare(str(tmp_path), out=tmp_path / "out", tokenizer="bpe:257")["splits"]) == ["train", "tune", "val"]


# --- kills ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["1", "8", "write_json", "publish_folder", "fsync_folder", "renamed"])
def test_a_preparation_killed_at_a_given_moment_leaves_nothing_that_looks_whole(
    tmp_path, python_command, reference_digest, moment
):
    out = tmp_path / "out"
    killed = subprocess.run(**python_command(PREPARE, out, moment), stdout=subprocess.PIPE)
    assert killed.returncode == -signal.SIGKILL
    assert out.exists() == (moment == "renamed")
    assert_whole_or_absent(out, reference_digest)
    assert prepare("stories", out=out, **STORIES)["digest"] == reference_digest
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("moment", ["publish_folder", "renamed"])
def test_a_killed_replacement_keeps_the_old_or_has_the_new(tmp_path, python_command, reference_digest, moment):
    out = tmp_path / "out"
    old = prepare("stories", out=out, **(STORIES | {"seed": 1}))["digest"]
    killed = subprocess.run(**python_command(PREPARE, out, moment, "--force"), stdout=subprocess.PIPE)
    assert killed.returncode == -signal.SIGKILL
    assert_whole_or_absent(out, reference_digest if moment == "renamed" else old)


@pytest.mark.parametrize("stage", ["training the tokenizer", "encoding"])
def test_ctrl_c_leaves_nothing_half(tmp_path, python_command, stage):
    process = subprocess.Popen(
        **python_command(PREPARE, tmp_path / "out", "never"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while process.stdout.readline().strip() != stage:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode != 0
    assert os.listdir(tmp_path) == []


def test_a_second_preparation_of_the_same_folder_is_refused(tmp_path, python_command):
    process = subprocess.Popen(**python_command(PREPARE, tmp_path / "out", "never"), stdout=subprocess.PIPE)
    process.stdout.readline()
    try:
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(UserError, match=f"is being prepared by process {process.pid}"):
            prepare("stories", out=tmp_path / "out", **STORIES)
    finally:
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=60)
    assert process.returncode == 0
    open_tokens(tmp_path / "out")


def test_the_remains_of_other_datasets_are_left_alone(tmp_path):
    (tmp_path / ".partial-999999-other").mkdir()
    (tmp_path / ".partial-999999-out").mkdir()
    prepare("stories", out=tmp_path / "out", **STORIES)
    assert leftovers(tmp_path) == [".partial-999999-other"]


# --- disks and memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokenizer", ["bpe:300", "gpt2"])
def test_a_full_disk_is_explained_and_leaves_nothing(tmp_path, mounted, gpt2_folder, tokenizer):
    file = written_stories(tmp_path / "in.txt", 4_000)
    options = {"tokenizer": tokenizer, "gpt2_folder": gpt2_folder}
    prepare(str(file), out=tmp_path / "out", **options)
    real = sum(part.stat().st_size for part in (tmp_path / "out").rglob("*")) / 2**20
    disk = mounted("size=2m")
    with pytest.raises(UserError) as error:
        prepare(str(file), out=disk / "out", **options)
    assert str(error.value).startswith(f"{disk}: disk full: needs ")
    needed, has = (float(part.split()[0]) for part in str(error.value).split("needs ")[1].split("has "))
    assert needed == pytest.approx(real, rel=0.1)
    assert 1.5 < has <= 2.0
    assert os.listdir(disk) == []


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from /proc")
@pytest.mark.parametrize(
    ("tokenizer", "count"), [("gpt2", 8_000), pytest.param("bpe:300", 3_500, marks=pytest.mark.trial)]
)
def test_memory_does_not_grow_with_the_input(tmp_path, python_command, gpt2_folder, tokenizer, count):
    peaks = []
    for size in (count, 4 * count):
        file = written_stories(tmp_path / f"{size}.txt", size)
        command = python_command(MEASURE, file, tmp_path / f"out-{size}", tokenizer, gpt2_folder)
        peaks.append(int(subprocess.check_output(**command)) / 1024)
    # Held in memory, the added text alone would take 6 MB, and its tokens more.
    assert peaks[1] - peaks[0] < 5, peaks


def test_real_tinystories_becomes_the_known_number_of_tokens(tmp_path, shared_data, gpt2_folder):
    manifest = prepare(
        "tinystories", source_path=shared_data / "tinystories", out=tmp_path / "out", gpt2_folder=gpt2_folder
    )
    assert manifest["splits"]["train"]["documents"] == 9_999
    assert manifest["splits"]["train"]["tokens"] == 2_028_330
    check_tokens(open_tokens(tmp_path / "out"), seq_len=512, vocabulary=50_257)


def test_the_manifest_says_what_is_there_and_preparing_again_does_nothing(reference):
    manifest = json.loads((reference / "manifest.json").read_text())
    assert (manifest["corpus"], manifest["source"]) == ("stories", "600 embedded stories, seed 0")
    assert (manifest["tokenizer"], manifest["vocabulary"], manifest["dtype"]) == ("bpe:300", 300, "uint16")
    assert manifest["format_version"] == 1
    for name, entry in manifest["splits"].items():
        assert set(entry) == {
            "documents", "empty_dropped", "crlf_line_ends", "tokens", "text_bytes", "sha256", "also_in_train",
        }  # fmt: skip
        assert (reference / f"{name}.bin").stat().st_size == 2 * entry["tokens"]
    assert sum(entry["documents"] for entry in manifest["splits"].values()) == 600
    before = {file: file.stat().st_mtime_ns for file in reference.rglob("*")}
    told: list[Preparation] = []
    assert prepare("stories", out=reference, progress=told.append, **STORIES) == manifest
    assert [progress.stage for progress in told] == ["already prepared"]
    assert {file: file.stat().st_mtime_ns for file in reference.rglob("*")} == before


def test_each_corpus_has_its_default_tokenizer_and_a_linked_folder_keeps_its_link(tmp_path, gpt2_folder):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert prepare("stories", out=tmp_path / "link", stories=600)["tokenizer"] == "bpe:1024"
    assert (tmp_path / "link").is_symlink()
    open_tokens(tmp_path / "real")
    file = written_stories(tmp_path / "in.txt", 20)
    assert prepare(str(file), out=tmp_path / "b", gpt2_folder=gpt2_folder)["tokenizer"] == "gpt2"


@pytest.mark.parametrize("force", [False, True])
def test_files_of_others_are_never_replaced(tmp_path, reference, force):
    (tmp_path / "out").mkdir()
    shutil.copytree(reference, tmp_path / "beside")
    for folder in ("out", "beside"):
        (tmp_path / folder / "thesis.tex").write_text("dear")
        if force or folder == "out":
            with pytest.raises(UserError, match=r"thesis\.tex"):
                prepare("stories", out=tmp_path / folder, force=force, **STORIES)
        assert (tmp_path / folder / "thesis.tex").read_text() == "dear"


@pytest.mark.trial
def test_many_killed_preparations_never_leave_a_whole_looking_dataset(tmp_path, python_command, reference_digest):
    start = time.monotonic()
    subprocess.run(**python_command(PREPARE, tmp_path / "timed", "never"), stdout=subprocess.DEVNULL, check=True)
    duration, draw, out, killed = time.monotonic() - start, random.Random(2), tmp_path / "out", 0
    for _ in range(60):
        process = subprocess.Popen(**python_command(PREPARE, out, "never"), stdout=subprocess.DEVNULL)
        time.sleep(draw.uniform(0.2, 1.05) * duration)
        process.kill()
        killed += process.wait() < 0
        assert_whole_or_absent(out, reference_digest)
        shutil.rmtree(out, ignore_errors=True)
    assert prepare("stories", out=out, **STORIES)["digest"] == reference_digest
    assert leftovers(tmp_path) == []
    assert killed > 0
    print(f"K8: {killed} of 60 preparations killed, no half dataset")


def test_a_read_only_disk_or_a_mount_point_as_output_is_explained(mounted):
    with pytest.raises(UserError, match="cannot write there"):
        prepare("stories", out=mounted("ro") / "out", **STORIES)
    disk = mounted("size=8m")
    with pytest.raises(UserError, match="mount point"):
        prepare("stories", out=disk, **STORIES)
    assert os.listdir(disk) == []
    assert leftovers(disk.parent) == []
