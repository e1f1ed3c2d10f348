"""Faults planted one at a time in a copy of the source, each of which the tests must find: `make mutants`.

A row is a file, what stands there, the fault that takes its place, and the tests that should turn red. A fault that
they do not find has survived: a test is missing, or the fault changes nothing that can be seen (`argued` says why).
With words, only the rows whose text contains one of them; the exit code is the number of survivors that nobody argued.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Mutant:
    file: str  # below src/oelm
    old: str  # stands there once
    new: str
    tests: str  # files and folders below tests
    argued: str | None = None  # why it may survive


WHOLE_RUN = "training/test_independent.py"
MUTANTS = (
    # ---- What a step reads ----
    Mutant("data/batches.py", 'seed_of(seed, "order", epoch)', 'seed_of(seed, "order", 0)', WHOLE_RUN),
    Mutant("data/batches.py", 'seed_of(self.seed, "shift", epoch)', 'seed_of(self.seed, "shift", 0)', WHOLE_RUN),
    Mutant("data/batches.py", "first = (step - 1) * self.batch_size", "first = step * self.batch_size", WHOLE_RUN),
    Mutant("data/batches.py", "member * self.available // len(self)", "member", f"data/test_batches.py {WHOLE_RUN}"),
    Mutant("training/at_answers.py", "answers_of(probe, training.batch_size)", "answers_of(probe, 2)", WHOLE_RUN),
    # ---- Training ----
    Mutant("training/next_token.py", "    gpt.eval()\n", "", WHOLE_RUN),
    Mutant("training/next_token.py", "    gpt.train()\n", "", WHOLE_RUN),
    Mutant("training/at_answers.py", "        self.model.eval()\n", "", WHOLE_RUN),
    Mutant("training/at_answers.py", "        self.model.train()\n", "", WHOLE_RUN),
    Mutant("training/loop.py", '"dropout", step, members.start', '"dropout", step', WHOLE_RUN),
    Mutant("training/loop.py", '"dropout", step, members.start', '"dropout", members.start', WHOLE_RUN),
    Mutant("training/loop.py", "        loss += part.detach()", "        loss = part.detach()", WHOLE_RUN),
    Mutant(
        "training/driver.py",
        "        self.progress.resumes += 1\n",
        "        self.progress.resumes += 1\n        self.progress.loss_sum, self.progress.loss_steps = 0.0, 0\n",
        WHOLE_RUN,
    ),
    Mutant(
        "training/driver.py",
        "progress.loss_sum, progress.loss_steps, progress.clipped_since = 0.0, 0, 0",
        "progress.clipped_since = 0",
        WHOLE_RUN,
    ),
    Mutant(
        "training/driver.py",
        "progress.last_val_loss = loss\n",
        "progress.last_val_loss = min(loss, 99)\n",
        "training/test_run.py",
        argued="a loss of 99 nats is never reached by a run that is finite",
    ),
    Mutant(
        "training/driver.py",
        "loss < progress.best_val_loss",
        "loss > progress.best_val_loss",
        "training/test_best_model.py training/test_run.py",
    ),
    Mutant(
        "training/optimizer.py", "* step / training.warmup_steps", "* (step - 1) / training.warmup_steps", WHOLE_RUN
    ),
    Mutant("training/optimizer.py", "limit / norm)", "limit / norm**0.5)", WHOLE_RUN),
    Mutant(
        "training/optimizer.py",
        'if name not in decaying], "weight_decay": 0.0',
        'if name not in decaying], "weight_decay": training.weight_decay',
        f"training/test_optimizer.py {WHOLE_RUN}",
    ),
    Mutant(
        "training/next_token.py",
        "self._final_sequences = ValidationSequences(held_out, seq_len, training.final_validation_sequences)",
        "self._final_sequences = self._sequences",
        WHOLE_RUN,
    ),
    Mutant(
        "training/next_token.py",
        "summed / (len(sequences) * sequences.seq_len)",
        "summed / (len(sequences) * (sequences.seq_len + 1))",
        "training/test_next_token.py",
    ),
    # ---- What an arm is ----
    Mutant("model/freezing.py", "step > thaw_fraction", "step >= thaw_fraction", "model/test_freezing.py"),
    Mutant(
        "model/freezing.py", "step <= moves.fraction * steps", "step < moves.fraction * steps", "model/test_freezing.py"
    ),
    Mutant(
        "model/freezing.py",
        "            if not moving:\n                parameter.grad = None\n",
        "",
        "model/test_freezing.py training/test_loop.py",
    ),
    Mutant("model/freezing.py", "range(first, last + 1)", "range(first, last)", "model/test_freezing.py"),
    Mutant(
        "training/driver.py",
        "        since_start.check(self.objective.model, self.progress.step)\n",
        "",
        "training/test_run.py faults/test_planted_faults.py faults/test_damaged_checkpoints.py",
    ),
    Mutant(
        "model/initialization.py",
        "seed, matrix_free = seeds.projections if is_treated else seeds.weights",
        "seed, matrix_free = seeds.weights",
        "model/test_initialization.py",
    ),
    Mutant(
        "model/initialization.py",
        "manual_seed(seed_of(seed, name))",
        "manual_seed(seed)",
        "model/test_initialization.py",
    ),
    Mutant(
        "treatment/starts.py",
        "return 1 / math.sqrt(sizes.columns)",
        "return 1 / math.sqrt(sizes.rows)",
        "treatment model/test_initialization.py",
    ),
    Mutant(
        "model/scores.py",
        "torch.cat([-second, first], dim=-1)",
        "torch.cat([second, -first], dim=-1)",
        "model/test_scores.py",
    ),
    Mutant(
        "model/repairs.py",
        "before_BHTK = _preceded(name, x_BHTK, 1, cache, places)[:, :, :-1]",
        "before_BHTK = x_BHTK",
        "model",
    ),
    Mutant("model/attention.py", "q_BHTK * temperature_H[:, None, None]", "q_BHTK * temperature_H.mean()", "model"),
    Mutant(
        "accounting.py",
        "modules * rows * numbers, modules * frozen * numbers",
        "modules * rows * numbers, frozen * numbers",
        "test_accounting.py",
    ),
    Mutant(
        "accounting.py",
        'yield count("norm", layer, 2 * width, 2)',
        'yield count("norm", layer, width, 2)',
        "test_accounting.py",
    ),
    # ---- What is chosen ----
    Mutant("study/one_run.py", '{"training.validation_split": "tune"}', "{}", "study"),
    Mutant(
        "study/tuning.py",
        "best = min(losses, key=rank)",
        "best = max(losses, key=rank)",
        "study/test_rates.py study/test_ranking.py study/test_plan.py",
    ),
    Mutant("study/halving.py", "return fmean(differences[:-1])", "return fmean(differences)", "study/test_halving.py"),
    Mutant("study/rate_fit.py", "if curvature <= 0:", "if curvature < -1:", "study/test_rate_fit.py"),
    # ---- Verdicts ----
    Mutant("analysis/hypotheses.py", "level=2 * stage.of_t.at(LEVEL / 2)", "level=LEVEL", "analysis/test_looks.py"),
    Mutant(
        "analysis/arm_summaries.py",
        "level=interval_level(study.looks, len(one.keys() & other.keys()))",
        "level=0.05",
        "analysis/test_looks.py",
    ),
    Mutant(
        "analysis/spending.py",
        "_score(level) / math.sqrt(share)",
        "_score(level) / share**0.45",
        "analysis/test_spending.py",
    ),
    Mutant(
        "analysis/statistics.py",
        "(len(p_values) - rank) * p_values[index]",
        "len(p_values) * p_values[index]",
        "analysis/test_statistics.py",
    ),
    Mutant(
        "analysis/statistics.py",
        "largest = max(largest, min(1.0,",
        "largest = max(0.0, min(1.0,",
        "analysis/test_statistics.py",
    ),
    Mutant(
        "analysis/statistics.py",
        "special.stdtr(len(differences) - 1, (fmean",
        "special.stdtr(len(differences), (fmean",
        "analysis/test_statistics.py",
    ),
    Mutant(
        "analysis/statistics.py",
        "return max([*below, *above])",
        "return min([*below, *above])",
        "analysis/test_statistics.py",
    ),
    Mutant("intervals.py", "/ (len(values) - 1))", "/ len(values))", "test_intervals.py"),
    Mutant(
        "claims/kinds.py",
        "(self.upper is not None and low > self.upper)",
        "(self.upper is not None and high > self.upper)",
        "claims analysis/test_hypotheses.py",
    ),
    Mutant(
        "study/confounds.py", "            run=plain.run,", "            run=chosen.run,", "study/test_confounds.py"
    ),
    Mutant("study/bench.py", "half = max(half, abs(off) + uncertain)", "half = abs(half)", "study/test_bench.py"),
    # ---- What is stored ----
    Mutant("sealing.py", "if _entry(path) !=", "if False and _entry(path) !=", "test_sealing.py"),
    Mutant(
        "sealing.py",
        '            raise Damaged(path, "was added after the run was sealed")',
        "            pass",
        "test_sealing.py",
    ),
    Mutant(
        "archives.py", "    if found != {name: (entry", "    if False and found != {name: (entry", "test_archives.py"
    ),
    Mutant("files.py", "        os.fsync(stream.fileno())\n", "", "test_files.py faults/test_power_failure.py"),
    Mutant("training/checkpoint.py", "            check_whole(folder)\n", "", "faults/test_damaged_checkpoints.py"),
    Mutant("training/checkpoint.py", "    restore_optimizer(optimizer, model, moments)\n", "", WHOLE_RUN),
    Mutant(
        "study/registration.py",
        "early = max(entry.runs_then, sum(time < entry.time for time in times))",
        "early = entry.runs_then",
        "study/test_study_registration.py",
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--list", action="store_true", help="the rows, and whether what they change stands there once")
    asked = parser.parse_args()
    chosen = [each for each in MUTANTS if not asked.words or any(word in str(each) for word in asked.words)]
    if asked.list:
        return max([_listed(each) for each in chosen], default=0)
    place = Path(tempfile.mkdtemp(prefix="mutants-"))
    try:
        copy = place / "oelm"
        subprocess.run(["git", "clone", "--quiet", "--shared", str(REPOSITORY), str(copy)], check=True)
        ends = [_planted(each, copy, number, len(chosen)) for number, each in enumerate(chosen, 1)]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    argued = [each for each, found in zip(chosen, ends, strict=True) if not found and each.argued]
    survivors = [each for each, found in zip(chosen, ends, strict=True) if not found and not each.argued]
    for each in argued:
        print(f"survived, argued: {each.file}: {each.new.strip()!r}: {each.argued}")
    for each in survivors:
        print(f"SURVIVED: {each.file}: {each.old.strip()!r} -> {each.new.strip()!r}")
    print(f"{sum(ends)} of {len(chosen)} faults found, {len(argued)} argued, {len(survivors)} survivors")
    return len(survivors)


def _listed(mutant: Mutant) -> int:
    count = (REPOSITORY / "src/oelm" / mutant.file).read_text(encoding="utf-8").count(mutant.old)
    missing = [each for each in mutant.tests.split() if not (REPOSITORY / "tests" / each).exists()]
    if count != 1 or missing:
        print(f"{mutant.file}: {mutant.old!r} stands there {count} times; missing tests: {missing}")
    return int(count != 1 or bool(missing))


def _planted(mutant: Mutant, copy: Path, number: int, of: int) -> bool:
    """Whether its tests turn red."""
    file = copy / "src/oelm" / mutant.file
    text = file.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.file}: {mutant.old!r} stands there {text.count(mutant.old)} times, not once")
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    tests = [f"tests/{each}" for each in mutant.tests.split()]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        command,
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    file.write_text(text, encoding="utf-8")
    found = done.returncode == 1
    last = (done.stdout.strip().splitlines() or ["no output"])[-1].strip("= ")
    print(
        f"[{number}/{of}] {'found' if found else 'NOT FOUND'}: {mutant.file}: {mutant.new.strip()[:60]!r}: {last}",
        flush=True,
    )
    return found


if __name__ == "__main__":
    sys.exit(main())
