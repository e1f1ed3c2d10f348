"""How fast is `prepare` against tiktoken alone, and does its memory grow with the input?

Each repeat times tiktoken's encode_ordinary_batch on documents that already lie in memory, and our whole preparation
(read, split, encode, hash, write, fsync) of the same documents from a file, on the same cores and in alternating order.
A ratio of 1 means that everything around the encoding is free. The last line is the result.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import oelm
from oelm.data.corpora import open_corpus
from oelm.data.prepare import checked_workers, prepare
from oelm.data.stories import stories
from oelm.data.tokenizer import gpt2_tokenizer

MARK = "\n<|endoftext|>\n"
# VmHWM and not ru_maxrss: the latter of a child begins at what its parent held when it forked.
MEASURE_MEMORY = """
import re, sys
from pathlib import Path
from oelm.data.prepare import prepare
source, out, folder = sys.argv[1:]
prepare(source, out=Path(out), tokenizer="gpt2", gpt2_folder=Path(folder) if folder else None)
print(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
"""


def main() -> None:
    arguments = parsed_arguments()
    with tempfile.TemporaryDirectory(prefix="prepare-speed-") as folder:
        source = arguments.source or written_stories(Path(folder) / "stories.txt", arguments.megabytes)
        ratios = measured_ratios(source, Path(folder), arguments)
        one, four = (measured_memory(source, copies, Path(folder), arguments.gpt2_folder) for copies in (1, 4))
        print(f"peak memory: {one:.0f} MiB for 1 x the input, {four:.0f} MiB for 4 x ({four - one:+.0f} MiB)")
        print(
            f"prepare / tiktoken: median {statistics.median(ratios):.2f} of its throughput "
            f"(from {min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} repeats)"
        )


def parsed_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, help="a text file or folder; embedded stories if left out")
    parser.add_argument("--megabytes", type=int, default=24, help="of stories")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gpt2-folder", type=Path, help="with encoder.json and vocab.bpe")
    return parser.parse_args()


def written_stories(path: Path, megabytes: int) -> Path:
    with open(path, "w", encoding="utf-8") as stream:
        for text in stories(seed=0):
            stream.write(text + MARK)
            if stream.tell() >= megabytes * 1_000_000:
                return path
    raise AssertionError("stories never end")


def measured_ratios(source: Path, folder: Path, arguments: argparse.Namespace) -> list[float]:
    workers = checked_workers(None)
    documents = [text for part in open_corpus(str(source)).parts.values() for text, _ in part.read()]
    size = sum(len(text.encode()) for text in documents)
    encoding = gpt2_tokenizer(arguments.gpt2_folder).encoding
    print(f"{source.name}: {len(documents)} documents, {size / 1e6:.1f} MB, {workers} threads")

    def encode_alone() -> None:
        encoding.encode_ordinary_batch(documents, num_threads=workers)

    def whole_preparation() -> None:
        prepare(str(source), out=folder / "out", tokenizer="gpt2", gpt2_folder=arguments.gpt2_folder, force=True)

    ratios = []
    for repeat in range(arguments.repeats):
        tasks = [encode_alone, whole_preparation]
        seconds = {task: seconds_of(task) for task in (tasks if repeat % 2 else tasks[::-1])}
        alone, ours = seconds[encode_alone], seconds[whole_preparation]
        ratios.append(alone / ours)
        print(
            f"repeat {repeat + 1}: tiktoken alone {size / alone / 1e6:.2f} MB/s, "
            f"prepare {size / ours / 1e6:.2f} MB/s, ratio {ratios[-1]:.2f}"
        )
    return ratios


def seconds_of(task: Callable[[], None]) -> float:
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def measured_memory(source: Path, copies: int, folder: Path, gpt2_folder: Path | None) -> float:
    """Peak MiB of a fresh process that prepares `copies` of the source."""
    files = [source] if source.is_file() else [file for file in sorted(source.rglob("*")) if file.is_file()]
    repeated = folder / f"input-{copies}"
    repeated.mkdir()
    for copy in range(copies):
        for file in files:
            (repeated / f"{copy}-{file.name}").symlink_to(file.resolve())
    environment = os.environ | {"PYTHONPATH": str(Path(oelm.__path__[0]).parent)}
    command = [sys.executable, "-c", MEASURE_MEMORY, repeated, folder / f"out-{copies}", gpt2_folder or ""]
    finished = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return int(finished.stdout) / 1024


if __name__ == "__main__":
    main()
