"""What `oelm board` costs: its first answer, its page in a real browser, an update, being idle, memory, a long file.

Makes studies of 10, 100 and 1,000 runs with 500 records each, and a metric file of 1,000,000 lines, below a temporary
folder; serves each by a process of its own. Prints how the numbers grow, and each against its aim last.

    python benchmarks/board.py                    # everything, some minutes
    python benchmarks/board.py --runs 10,100 --lines 100000
    python benchmarks/board.py --without-browser
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from oelm.core.config import Run, Seeds, Training, resolved, stored_form
from oelm.core.logarithms import exponential
from oelm.core.settings import load_settings
from oelm.run.directory import RunDirectory
from oelm.run.sealing import seal_run
from oelm.show.board.follow import VALUES, Follower
from oelm.storage.ownership import Process
from oelm.study.shelf import read_stored

RECORDS = 500
ARMS = ("trained", "frozen_head_orthogonal", "frozen_normal", "trained_head_orthogonal", "frozen_scaled_normal")
LIVE = 10
AIMS = {
    "first answer (s)": 0.5,
    "page usable (s)": 2.0,
    "page of the study usable (s)": 2.0,
    "update of ten live runs (s)": 0.1,
    "idle share of a core": 0.05,
    "memory of the server (MB)": 200.0,
    "opening the long file (s)": 3.0,
}
DECLARATION = """
name: many
question: What does a page of many runs cost?
base:
  model: {{seq_len: 16, d_model: 32, num_layers: 2, num_heads: 4}}
  training: {{steps: 5000, batch_size: 4, learning_rate: 0.001}}
  data: data/none
arms: [{arms}]
seeds: [{seeds}]
hypotheses:
  - name: not-worse
    claim: It is not worse.
    kind: not_worse
    treatment: frozen_head_orthogonal
    control: trained
    varies: [start, scale, moves]
    margin_percent: 5
"""


# ---- Runs ------------------------------------------------------------------------------------------------------------


def records(seed: int, *, count: int = RECORDS) -> str:
    lines = []
    for step in range(10, 10 * count + 1, 10):
        place = f'"step": {step}, "tokens": {64 * step}, "seconds": {step / 20}'
        loss = 3 + 2 / (1 + step / 300) + 0.001 * (seed % 7)
        lines.append(f'{{{place}, "train_loss": {loss:.6f}, "learning_rate": 0.001, "gradient_norm": 1.25}}\n')
        if step % 250 == 0:
            lines.append(f'{{{place}, "val_loss": {loss + 0.05:.6f}, "perplexity": 30.0}}\n')
    return "".join(lines)


def make_run(folder: Path, arm: str, seed: int, *, ended: bool = True) -> RunDirectory:
    model = load_settings(preset="tiny", arm=arm).run.model
    sizes = {"seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4}
    run = resolved(
        Run(
            arm=arm,
            model=model.model_copy(update=sizes),
            training=Training(steps=10 * RECORDS, batch_size=4, learning_rate=1e-3),
            seeds=Seeds(weights=seed, projections=seed, data=seed),
            data="data/none",
        ),
        {"vocabulary": 64},
    )
    directory = RunDirectory(folder / f"{arm}-s{seed}-{seed:010x}")
    directory.path.mkdir(parents=True)
    directory.config_file.write_text(json.dumps(stored_form(run)))
    directory.environment_file.write_text(json.dumps({"data_digest": "d" * 64, "device": "cpu"}))
    directory.metrics_file.write_text(records(seed, count=RECORDS if ended else RECORDS // 2))
    if not ended:
        directory.write_status("running", **Process.current().__dict__, steps=10 * RECORDS)
        return directory
    loss = 3.2 + 0.001 * seed
    result = {"arm": arm, "seeds": run.seeds.model_dump(), "steps": 10 * RECORDS, "val_loss": loss}
    result |= {"perplexity": exponential(loss), "training_seconds": 250.0, "wall_seconds": 260.0}
    directory.result_file.write_text(json.dumps(result))
    directory.write_status("finished", steps=10 * RECORDS)
    seal_run(directory, "finished", step=10 * RECORDS)
    return directory


def make_study(root: Path, count: int) -> list[RunDirectory]:
    """So many runs, of which the last few are under way."""
    seeds = range(-(-count // len(ARMS)))
    wanted = [(arm, seed) for seed in seeds for arm in ARMS][:count]
    live = min(LIVE, count // 2)
    made = [
        make_run(root / "runs" / "many", arm, seed, ended=place < count - live)
        for place, (arm, seed) in enumerate(wanted)
    ]
    assert read_stored(made[0].path).state == "finished"  # and not damaged, which would cost less
    studies = root / "studies"
    studies.mkdir()
    text = DECLARATION.format(arms=", ".join(ARMS), seeds=", ".join(map(str, seeds)))
    (studies / "many.yaml").write_text(text)
    return made[count - live :]


# ---- A server --------------------------------------------------------------------------------------------------------


class Server:
    def __init__(self, root: Path, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}/"
        command = [sys.executable, "-m", "oelm", "board", "--no-open", "--port", str(port)]
        self.process = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.process.stdout.readline()
        while True:
            try:
                self.get("words")
                return
            except OSError:
                time.sleep(0.05)

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.address + path, timeout=600) as answer:
            return bytes(answer.read())

    def timed(self, path: str) -> float:
        begun = time.perf_counter()
        self.get(path)
        return time.perf_counter() - begun

    @property
    def seconds(self) -> float:
        """Of processor time, so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def megabytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def usable(browser: object, server: Server, query: str, ready: str) -> float:
    """Until a page in the browser can be used."""
    begun = time.perf_counter()
    browser.get(server.address + query)  # type: ignore[attr-defined]
    while not browser.execute_script(f"return {ready}"):  # type: ignore[attr-defined]
        time.sleep(0.02)
    return time.perf_counter() - begun


def new_browser(folder: Path) -> object:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
    for flag in (*flags, "--disable-background-networking", "--disable-sync", f"--user-data-dir={folder}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def update_seconds(server: Server, live: list[RunDirectory]) -> float:
    """Processor time for one record of each live run, beyond what the server spends idle, over several rounds."""
    rounds, step = 10, 10 * RECORDS // 2
    before, begun = server.seconds, time.monotonic()
    for number in range(1, rounds + 1):
        for directory in live:
            at = step + 10 * number
            directory.append_metrics({"step": at, "tokens": 64 * at, "seconds": at / 20, "train_loss": 3.2})
        time.sleep(1.2)
    spent, waited = server.seconds - before, time.monotonic() - begun
    idle_before = server.seconds
    time.sleep(waited)
    return max(0.0, spent - (server.seconds - idle_before)) / rounds


def measured(root: Path, count: int, port: int, *, with_browser: bool) -> dict[str, float]:
    live = make_study(root, count)
    server = Server(root, port)
    found: dict[str, float] = {}
    try:
        found["first answer (s)"] = server.timed("data/overview")
        if with_browser:
            browser = new_browser(root / "profile")
            rows = "document.querySelectorAll('td a').length > 0"
            drawn = "document.querySelectorAll('.scatterlayer .trace').length > 0"
            usable(browser, server, "?warm=1", rows)  # the first page of a browser waits for the browser
            found["page usable (s)"] = usable(browser, server, "", rows)
            found["page of the study usable (s)"] = usable(browser, server, "?study=many", f"{rows} && {drawn}")
            seeds = f"{rows} && document.querySelector('.chart')?.data?.[0]?.text"
            found["seeds apart (s)"] = usable(browser, server, "?study=many&seeds=1", seeds)
            of_training = f"{rows} && {drawn}"
            found["training loss (s)"] = usable(browser, server, "?study=many&y=train_loss", of_training)
        else:
            found["curves (s)"] = server.timed("data/curves?name=many")
            server.get("data/study?name=many")
        while not json.loads(server.get("data/study?name=many"))["standing"]:
            time.sleep(0.2)
        if with_browser:
            time.sleep(6)
            found["update of ten live runs (s)"] = update_seconds(server, live)
            before = server.seconds
            time.sleep(10)
            found["idle share of a core"] = (server.seconds - before) / 10
            browser.quit()  # type: ignore[attr-defined]
        found["memory of the server (MB)"] = server.megabytes
    finally:
        server.close()
    return found


def long_file(root: Path, lines: int) -> dict[str, float]:
    """Opening, and following at the start and at the end of a file."""
    directory = RunDirectory(root / "long")
    directory.path.mkdir()
    with open(directory.metrics_file, "w") as stream:
        for step in range(1, lines + 1):
            stream.write(f'{{"step": {step}, "tokens": {64 * step}, "seconds": {step / 20}, "train_loss": 3.25}}\n')
    followers = [Follower(directory.metrics_file, kind) for kind in VALUES]
    begun = time.perf_counter()
    for follower in followers:
        follower.poll()
    opening = time.perf_counter() - begun

    def follow(file: RunDirectory, readers: list[Follower], step: int) -> float:
        spent = []
        for number in range(20):
            file.append_metrics({"step": step + number, "tokens": 1, "seconds": 1.0, "train_loss": 3.0})
            begun = time.perf_counter()
            for reader in readers:
                reader.poll()
            spent.append(time.perf_counter() - begun)
        return sorted(spent)[10]

    short = RunDirectory(root / "short")
    short.path.mkdir()
    short.append_metrics({"step": 1, "tokens": 1, "seconds": 1.0, "train_loss": 3.0})
    of_short = [Follower(short.metrics_file, kind) for kind in VALUES]
    at_start, at_end = follow(short, of_short, 2), follow(directory, followers, lines + 1)
    return {"opening the long file (s)": opening, "following it, against a short one": at_end / at_start}


def _listed(numbers: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in numbers.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", default="10,100,1000")
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--port", type=int, default=8960)
    parser.add_argument("--without-browser", action="store_true")
    given = parser.parse_args()
    with_browser = not given.without_browser and bool(shutil.which("chromium") and shutil.which("chromedriver"))
    if not with_browser:
        print("without a browser (apt-get install chromium chromium-driver): no times of pages")
    counts = [int(count) for count in given.runs.split(",")]
    by_count: dict[int, dict[str, float]] = {}
    for place, count in enumerate(counts):
        with tempfile.TemporaryDirectory(prefix="oelm-board-") as folder:
            by_count[count] = measured(Path(folder), count, given.port + place, with_browser=with_browser)
        print(f"{count} runs: {_listed(by_count[count])}", flush=True)
    with tempfile.TemporaryDirectory(prefix="oelm-board-") as folder:
        of_file = long_file(Path(folder), given.lines)
    print(f"a file of {given.lines:,} lines: {_listed(of_file)}")
    print("growth from the fewest runs to the most:")
    first, last = by_count[counts[0]], by_count[counts[-1]]
    for name, value in last.items():
        print(f"  {name}: {first[name]:.3f} -> {value:.3f} ({value / max(first[name], 1e-6):.1f} times)")
    for name, value in (last | of_file).items():
        if name in AIMS:
            print(f"{name}: {value:.3f}, aim below {AIMS[name]:g}: {'kept' if value < AIMS[name] else 'MISSED'}")


if __name__ == "__main__":
    main()
