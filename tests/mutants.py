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


WHOLE_RUN = "run/training/test_independent.py"
MUTANTS = (
    # ---- What a step reads ----
    Mutant("data/batches.py", 'seed_of(seed, "order", epoch)', 'seed_of(seed, "order", 0)', WHOLE_RUN),
    Mutant("data/batches.py", 'seed_of(self.seed, "shift", epoch)', 'seed_of(self.seed, "shift", 0)', WHOLE_RUN),
    Mutant("data/batches.py", "first = (step - 1) * self.batch_size", "first = step * self.batch_size", WHOLE_RUN),
    Mutant("data/batches.py", "member * self.available // len(self)", "member", f"data/test_batches.py {WHOLE_RUN}"),
    Mutant("run/training/at_answers.py", "answers_of(probe, training.batch_size)", "answers_of(probe, 2)", WHOLE_RUN),
    # ---- Training ----
    Mutant("run/training/next_token.py", "    gpt.eval()\n", "", WHOLE_RUN),
    Mutant("run/training/next_token.py", "    gpt.train()\n", "", WHOLE_RUN),
    Mutant("run/training/at_answers.py", "        self.model.eval()\n", "", WHOLE_RUN),
    Mutant("run/training/at_answers.py", "        self.model.train()\n", "", WHOLE_RUN),
    Mutant("run/training/loop.py", '"dropout", step, members.start', '"dropout", step', WHOLE_RUN),
    Mutant("run/training/loop.py", '"dropout", step, members.start', '"dropout", members.start', WHOLE_RUN),
    Mutant("run/training/loop.py", "        loss += part.detach()", "        loss = part.detach()", WHOLE_RUN),
    Mutant(
        "run/training/driver.py",
        "        self.progress.resumes += 1\n",
        "        self.progress.resumes += 1\n        self.progress.loss_sum, self.progress.loss_steps = 0.0, 0\n",
        WHOLE_RUN,
    ),
    Mutant(
        "run/training/driver.py",
        "progress.loss_sum, progress.loss_steps, progress.clipped_since = 0.0, 0, 0",
        "progress.clipped_since = 0",
        WHOLE_RUN,
    ),
    Mutant(
        "run/training/driver.py",
        "progress.last_val_loss = loss\n",
        "progress.last_val_loss = min(loss, 99)\n",
        "run/training/test_run.py",
        argued="a loss of 99 nats is never reached by a run that is finite",
    ),
    Mutant(
        "run/training/driver.py",
        "loss < progress.best_val_loss",
        "loss > progress.best_val_loss",
        "run/training/test_best_model.py run/training/test_run.py",
    ),
    Mutant(
        "run/training/optimizer.py", "* step / training.warmup_steps", "* (step - 1) / training.warmup_steps", WHOLE_RUN
    ),
    Mutant("run/training/optimizer.py", "limit / norm)", "limit / norm**0.5)", WHOLE_RUN),
    Mutant(
        "run/training/optimizer.py",
        'if name not in decaying], "weight_decay": 0.0',
        'if name not in decaying], "weight_decay": training.weight_decay',
        f"run/training/test_optimizer.py {WHOLE_RUN}",
    ),
    Mutant(
        "run/training/next_token.py",
        "self._final_sequences = ValidationSequences(held_out, seq_len, training.final_validation_sequences)",
        "self._final_sequences = self._sequences",
        WHOLE_RUN,
    ),
    Mutant(
        "run/training/next_token.py",
        "summed / (len(sequences) * sequences.seq_len)",
        "summed / (len(sequences) * (sequences.seq_len + 1))",
        "run/training/test_next_token.py",
    ),
    # ---- What an arm is ----
    Mutant("core/model/freezing.py", "step > thaw_fraction", "step >= thaw_fraction", "core/model/test_freezing.py"),
    Mutant(
        "core/model/freezing.py",
        "step <= moves.fraction * steps",
        "step < moves.fraction * steps",
        "core/model/test_freezing.py",
    ),
    Mutant(
        "core/model/freezing.py",
        "            if not moving:\n                parameter.grad = None\n",
        "",
        "core/model/test_freezing.py",
    ),
    Mutant("core/model/freezing.py", "range(first, last + 1)", "range(first, last)", "core/model/test_freezing.py"),
    Mutant(
        "run/training/driver.py",
        "        since_start.check(self.objective.model, self.progress.step)\n",
        "",
        "run/training/test_run.py faults/test_damaged_checkpoints.py",
    ),
    Mutant(
        "core/model/initialization.py",
        "seed, matrix_free = seeds.projections if is_treated else seeds.weights",
        "seed, matrix_free = seeds.weights",
        "core/model/test_initialization.py",
    ),
    Mutant(
        "core/model/initialization.py",
        "manual_seed(seed_of(seed, name))",
        "manual_seed(seed)",
        "core/model/test_initialization.py",
    ),
    Mutant(
        "core/starts.py",
        "return 1 / math.sqrt(sizes.columns)",
        "return 1 / math.sqrt(sizes.rows)",
        "core/test_starts.py",
    ),
    Mutant(
        "core/model/scores.py",
        "torch.cat([-second, first], dim=-1)",
        "torch.cat([second, -first], dim=-1)",
        "core/model/test_scores.py",
    ),
    Mutant(
        "core/model/repairs.py",
        "before_BHTK = _preceded(name, x_BHTK, 1, cache, places)[:, :, :-1]",
        "before_BHTK = x_BHTK",
        "core/model/test_repairs.py",
    ),
    Mutant(
        "core/model/attention.py",
        "q_BHTK * temperature_H[:, None, None]",
        "q_BHTK * temperature_H.mean()",
        "core/model/test_repairs.py",
    ),
    Mutant(
        "core/accounting.py",
        "modules * rows * numbers, modules * frozen * numbers",
        "modules * rows * numbers, frozen * numbers",
        "core/test_accounting.py",
    ),
    Mutant(
        "core/accounting.py",
        'yield count("norm", layer, 2 * width, 2)',
        'yield count("norm", layer, width, 2)',
        "core/test_accounting.py",
    ),
    # ---- What is chosen ----
    Mutant("study/one_run.py", '{"training.validation_split": "tune"}', "{}", "study/test_plan.py"),
    Mutant(
        "study/tuning.py",
        "best = min(losses, key=rank)",
        "best = max(losses, key=rank)",
        "study/test_rates.py study/test_ranking.py study/test_plan.py",
    ),
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
        "special.stdtr(len(differences) - 1, beyond",
        "special.stdtr(len(differences), beyond",
        "analysis/test_statistics.py",
    ),
    Mutant(
        "analysis/statistics.py",
        "return max(_p(differences, -distance)",
        "return min(_p(differences, -distance)",
        "analysis/test_statistics.py",
    ),
    Mutant("core/intervals.py", "/ (len(values) - 1))", "/ len(values))", "core/test_intervals.py"),
    Mutant(
        "study/claims/kinds.py",
        "(self.upper is not None and low > self.upper)",
        "(self.upper is not None and high > self.upper)",
        "study/claims analysis/test_hypotheses.py",
    ),
    Mutant(
        "study/confounds.py", "            run=plain.run,", "            run=chosen.run,", "study/test_confounds.py"
    ),
    # ---- What is stored ----
    Mutant("study/archives.py", 'if digest.hexdigest() != entry["sha256"]:', "if False:", "study/test_archives.py"),
    Mutant(
        "storage/files.py", "os.fsync(stream.fileno())", "pass", "storage/test_files.py faults/test_power_failure.py"
    ),
    Mutant("run/training/checkpoint.py", "            check_whole(folder)\n", "", "faults/test_damaged_checkpoints.py"),
    Mutant("run/training/checkpoint.py", "    restore_optimizer(optimizer, model, moments)\n", "", WHOLE_RUN),
    Mutant(
        "study/registration.py",
        "early = max(entry.comes_late, sum(time < entry.time for time in times))",
        "early = entry.comes_late",
        "study/test_study_registration.py",
    ),
    # ---- Again, of every subject: what is asked of data ----
    Mutant("data/batches.py", "% (slack + 1)", "% slack", "data/test_batches.py"),
    Mutant("data/prepare_sentences.py", "            lower = bound\n", "", "data/test_prepare_sentences.py"),
    Mutant(
        "data/prepare_sentences.py",
        "first_keys.append(content_hash(example.texts[0]))",
        'first_keys.append(content_hash("\\t".join(example.texts)))',
        "data/test_tasks.py data/test_prepare_sentences.py",
    ),
    Mutant(
        "data/prepare_sentences.py",
        'places[np.argsort(survey.keys[places], kind="stable")[wanted:]]',
        "places[wanted:]",
        "data/test_tasks.py data/test_prepare_sentences.py",
    ),
    Mutant("data/tokens.py", "start + int(np.argmax", "int(np.argmax", "data/test_tokens.py"),
    Mutant("data/tokens.py", 'half if name == "val" else 0', "0", "data/test_tokens.py"),
    Mutant("data/batches.py", 'seed_of(self.seed, "batches", epoch)', "epoch", "data/test_sentence_batches.py"),
    Mutant("data/batches.py", "rest - 1", "rest", "data/test_sentence_batches.py"),
    Mutant("data/batches.py", "second & (", "second | (", "data/test_sentence_batches.py"),
    Mutant("data/folders.py", "found.st_ctime_ns", "found.st_mtime_ns", "data/test_remembered.py"),
    Mutant("data/folders.py", "time.time_ns() - SETTLED_NANOSECONDS", "time.time_ns()", "data/test_remembered.py"),
    Mutant("data/prepare.py", "number in self._in_train:", "number in self._held_out:", "data/test_overlap.py"),
    Mutant("data/encodings.py", "final=not block", "final=False", "data/test_encodings.py"),
    Mutant("core/probes/examples.py", "bucket >= len(HELD_OUT)", "bucket >= 1", "core/probes/test_examples.py"),
    Mutant("core/probes/examples.py", "self.below(last + 1, 1)", "self.below(last, 1)", "core/probes/test_examples.py"),
    # ---- Training, its exchange and its files ----
    Mutant("run/training/optimizer.py", "max(1, training.steps - training.warmup_steps)", "training.steps", WHOLE_RUN),
    Mutant("run/training/loss.py", "        if not _is_one(outer):", "        if False:", "run/training/test_loss.py"),
    Mutant("run/training/distributed.py", "flat.split([", "flat.flip(0).split([", "run/training/test_distributed.py"),
    Mutant(
        "run/training/distributed.py",
        "int(self._store.get(key)) < self._count",
        "int(self._store.get(key)) <= self._count",
        "run/training/test_roll_call.py",
    ),
    Mutant(
        "run/training/distributed.py",
        "[] if time.monotonic() - self._began < self._limit else self._absent(others)",
        "self._absent(others)",
        "run/training/test_roll_call.py",
    ),
    Mutant(
        "run/training/driver.py",
        "            self.best_model.wait()  #",
        "            #",
        "run/training/test_run.py",
    ),
    Mutant(
        "run/training/driver.py",
        "if not all(parameter.isfinite().all() for parameter in",
        "if not any(parameter.isfinite().all() for parameter in",
        "faults/test_divergence.py",
    ),
    Mutant(
        "run/training/driver.py",
        'vars(self.progress) | {"wall_seconds": self._wall_seconds()}',
        "vars(self.progress)",
        "run/training/test_run.py",
    ),
    Mutant("run/training/best_model.py", "copy.clone() if", "copy if", "run/training/test_best_model.py"),
    Mutant(
        "run/training/checkpoint.py",
        "if type(step) is not int or step != checkpoint_step(folder):",
        "if type(step) is not int:",
        "faults/test_damaged_checkpoints.py faults/test_fuzzed_files.py",
    ),
    Mutant(
        "run/directory.py",
        "if checkpoint_step(folder) <= newest][-keep:]",
        "][-keep:]",
        "run/test_directory.py faults/test_damaged_checkpoints.py",
    ),
    Mutant(
        "core/model/freezing.py",
        "self.step, self.digests = step, found",
        "self.step = step",
        "core/model/test_freezing.py",
    ),
    Mutant(
        "core/model/freezing.py",
        "(name, self.step + 1, step)",
        "(name, self.step, step)",
        "core/model/test_freezing.py",
    ),
    Mutant(
        "storage/metric_records.py",
        "        if step >= self.last_step:\n",
        "        if step > self.last_step:\n",
        "storage/test_metric_records.py",
    ),
    Mutant(
        "storage/metric_records.py",
        "            self.before, self.after = record, None\n",
        "            self.before = record\n",
        "storage/test_metric_records.py",
    ),
    # ---- Treatments and studies ----
    Mutant("core/starts.py", "(q * signs).T", "q.T", "core/test_starts.py core/model/test_initialization.py"),
    Mutant(
        "core/options.py",
        " or any(option.draws for option, _ in in_use(model))",
        "",
        "core/test_draws.py",
    ),
    Mutant("study/shelf.py", '"finished": 0, "diverged": 1', '"finished": 1, "diverged": 0', "study/test_shelf.py"),
    Mutant("study/shelf.py", "stored.data_digest in (None, data_digest)", "True", "study/test_shelf.py"),
    Mutant(
        "study/kept_choices.py", "sum(time < made for time", "sum(time > made for time", "study/test_kept_choices.py"
    ),
    Mutant(
        "study/kept_looks.py",
        '"looks": study.looks, "seeds"',
        '"seeds"',
        "study/test_kept_looks.py",
    ),
    Mutant(
        "study/registration.py", "return in_time[-1] if", "return in_time[0] if", "study/test_study_registration.py"
    ),
    Mutant(
        "study/departures.py",
        "in_between = (each for other in registration.later for each",
        "in_between = (each for other in registration.later[:0] for each",
        "study/test_departures.py",
    ),
    Mutant(
        "study/departures.py",
        "return is_own or (claim.confirmatory",
        "return is_own or (False and claim.confirmatory",
        "study/test_departures.py",
    ),
    Mutant(
        "study/carrying.py", "2 ** (height + slope * place)", "2 ** (height - slope * place)", "study/test_carrying.py"
    ),
    Mutant("study/bench.py", "for number in self.quiet]", "for number in range(self.blocks)]", "study/test_bench.py"),
    # ---- Analysis and statistics ----
    Mutant(
        "analysis/arm_summaries.py", "set.intersection(*(set(run)", "set.union(*(set(run)", "analysis/test_curves.py"
    ),
    Mutant(
        "analysis/arm_summaries.py",
        '(before["val_loss"] - target_loss) /',
        '(target_loss - after["val_loss"]) /',
        "analysis/test_curves.py",
    ),
    Mutant("core/solving.py", "self.by <= other.after", "self.by < other.by", "analysis/test_solving.py"),
    Mutant(
        "analysis/statistics.py",
        "side = found.neither if other is None else found.behind",
        "side = found.behind",
        "analysis/test_solving.py",
    ),
    Mutant(
        "analysis/statistics.py",
        "float(shifted.sum()) + rounding",
        "float(shifted.sum())",
        "analysis/test_statistics.py",
    ),
    Mutant(
        "analysis/statistics.py",
        "special.bdtrc(count - 1, of",
        "special.bdtrc(count, of",
        "analysis/test_statistics.py",
    ),
    Mutant(
        "analysis/statistics.py",
        "apart[is_far] = ~rest[is_far]",
        "apart[rows[is_far], furthest[is_far]] = True",
        "analysis/test_statistics.py",
    ),
    Mutant(
        "analysis/spending.py",
        "kept = np.clip((score - self.edges[:-1]) / np.diff(self.edges), 0.0, 1.0)",
        "kept = 1.0",
        "analysis/test_spending.py",
    ),
    Mutant(
        "analysis/lines.py",
        "math.sqrt(1 + self.leverage(x, x))",
        "math.sqrt(self.leverage(x, x))",
        "analysis/test_lines.py",
    ),
    Mutant(
        "analysis/scale.py", '"parameters": control.total', '"parameters": treatment.total', "analysis/test_scale.py"
    ),
    Mutant(
        "analysis/scale.py",
        "is_whole = set(difference.seeds) == set(study.seeds)",
        "is_whole = True",
        "analysis/test_scale.py",
    ),
    Mutant(
        "analysis/looks.py",
        'verdict.outcome != "undecided" or verdict.reason in _HOPELESS',
        'verdict.outcome != "undecided"',
        "analysis/test_looks.py",
    ),
    Mutant(
        "core/measures.py",
        "else (high, low)",
        "else (low, high)",
        "core/test_measures.py show/test_classification_report.py",
    ),
    # ---- What is stored, and who runs ----
    Mutant("run/sealing.py", "or _wrong_mean(result)", "", "run/test_sealing.py"),
    Mutant(
        "run/sealing.py", 'or (result.get("best_step") == result["steps"] and best != last)', "", "run/test_sealing.py"
    ),
    Mutant(
        "run/sealing.py",
        'return checkpoint is not None and sha256_of(checkpoint) == seal["checkpoint"]["manifest_sha256"]',
        "return checkpoint is not None",
        "run/test_sealing.py",
    ),
    Mutant(
        "study/archives.py",
        'if sorted(member.filename for member in members[:-1]) != sorted(listing["files"]):',
        'if {member.filename for member in members[:-1]} != {*listing["files"]}:',
        "study/test_archives.py",
    ),
    Mutant("study/archives.py", "if shutil.disk_usage(folder).free < needed:", "if False:", "study/test_archives.py"),
    Mutant(
        "storage/files.py",
        "if path.is_symlink() and os.path.dirname(",
        "if False and os.path.dirname(",
        "data/test_tokens.py",
    ),
    Mutant("storage/files.py", "json.dumps(value, sort_keys=True, ", "json.dumps(value, ", "storage/test_files.py"),
    Mutant(
        "storage/whole_folder.py",
        "                _move_foreign(old, target, ours)\n                remove(old)\n",
        "                remove(old)\n",
        "storage/test_whole_folder.py",
    ),
    Mutant(
        "storage/whole_folder.py",
        "if found[2] and _is_folder(entry) and not target.exists():",
        "if False:",
        "storage/test_whole_folder.py",
    ),
    Mutant(
        "storage/ownership.py",
        "and self.pid_started == process_started(self.pid)",
        "and bool(process_started(self.pid))",
        "storage/test_ownership.py",
    ),
    Mutant("storage/ownership.py", "self.seconds_ahead > -STALE_SECONDS", "True", "storage/test_ownership.py"),
    Mutant("execution/controller.py", "0) < MOST_STARTS:", "0) <= MOST_STARTS:", "execution/test_silent_ends.py"),
    Mutant("execution/controller.py", "(code is None or code < 0)", "True", "execution/test_silent_ends.py"),
    Mutant(
        "execution/controller.py",
        "            plan = self._after_looks(self.afresh())  #",
        "            plan = self._after_looks(self._plan())  #",
        "execution/test_looking.py",
    ),
    Mutant(
        "execution/controller.py",
        "if not self.is_sealed and any(map(self._is_wanted, plan.final)):",
        "if False:",
        "execution/test_rounds.py",
    ),
    Mutant("execution/local.py", "if len(free) < run.processes:", "if not free:", "execution/test_local.py"),
    Mutant(
        "execution/handles.py",
        "if handle is None and damage is not None:",
        "if False:",
        "execution/test_local.py execution/test_engines.py",
    ),
    Mutant(
        "execution/engine.py",
        "        or owner_of(directory.lock_file) is not None\n",
        "",
        "execution/test_slurm.py execution/test_engines.py",
    ),
    Mutant(
        "execution/progress.py",
        "+ len(plan.saved) - len(plan.final))",
        "- len(plan.final))",
        "execution/test_progress.py",
    ),
    Mutant(
        "execution/progress.py",
        "max(STILL_SECONDS, a_twentieth)",
        "STILL_SECONDS",
        "execution/test_standing_still.py",
    ),
    Mutant(
        "execution/looking.py",
        "if run.arm in arms and run.seed in seeds]",
        "if run.arm in arms]",
        "execution/test_looking.py",
    ),
    # ---- What is shown ----
    Mutant("show/numbers.py", '"" if text != "∞" and float(text) == 0 else', "", "show/test_numbers.py"),
    Mutant(
        "show/numbers.py",
        "for each in (value, *column) if",
        "for each in (value,) if",
        "show/test_numbers.py show/test_tables.py",
    ),
    Mutant(
        "show/quality.py",
        "middle * spread if scale.is_logarithmic else spread",
        "spread",
        "show/test_quality.py",
    ),
    Mutant(
        "show/quality.py",
        "numbers.interval(*measure.ends(of_costs.low, of_costs.high)",
        "numbers.interval(*(of_costs.low, of_costs.high)",
        "show/test_classification_report.py",
    ),
    Mutant(
        "show/tables.py",
        "is not None and verdict.hypothesis.against is None",
        "is not None",
        "show/test_scale_in_reports.py",
    ),
    Mutant("show/tables.py", 'in "WF" else 1', 'in "F" else 1', "show/test_tables.py"),
    Mutant(
        "show/html.py",
        '<p class="reservation">{escape(each)}</p>',
        '<p class="reservation">{each}</p>',
        "show/test_markup.py",
    ),
    Mutant("show/markdown.py", "max(3, longest + 1)", "3", "show/test_markup.py"),
    Mutant("show/latex.py", '    "[": "{[}",\n', "", "show/test_latex.py"),
    Mutant(
        "show/figures/comparisons.py",
        "better = mean < 0",
        "better = mean > 0",
        "show/test_figures.py",
    ),
    Mutant(
        "show/figures/comparisons.py",
        "found[value] = min(loss, found.get(value, math.inf))",
        "found[value] = loss",
        "show/test_figures.py",
    ),
    Mutant(
        "execution/verification/recomputing.py",
        "        start.check(objective.model, step)",
        "        pass",
        "execution/verification/test_recomputing.py",
    ),
    # ---- Checks of what is read, of benches and of resources, taken out ----
    Mutant(
        "run/sealing.py", 'raise Damaged(path, "changed since the run was sealed")', "pass", "run/test_sealing.py"
    ),  # seals: digests are not compared
    Mutant(
        "run/sealing.py", 'if state in ("finished", "diverged"):', 'if state == "never":', "run/test_sealing.py"
    ),  # seals: a missing seal is no matter
    Mutant(
        "run/sealing.py", 'raise Damaged(path, "was added after the run was sealed")', "pass", "run/test_sealing.py"
    ),  # seals: a file may come later
    Mutant(
        "run/sealing.py", "if key in result and result[key] != value:", "if False:", "run/test_sealing.py"
    ),  # results: not held against the config
    Mutant(
        "run/sealing.py", "if not math.isclose(said, computed, rel_tol=1e-9):", "if False:", "run/test_sealing.py"
    ),  # results: any perplexity
    Mutant(
        "run/sealing.py", "or _against_metrics(directory, run, result)", "", "run/test_sealing.py"
    ),  # results: not held against the metrics
    Mutant(
        "run/sealing.py", "if predictions and not _agree(predictions, result):", "if False:", "run/test_sealing.py"
    ),  # results: predictions are not counted
    Mutant(
        "storage/schemas.py",
        "Loss = Annotated[float, Field(ge=0)]",
        "Loss = Annotated[float, Field()]",
        "run/test_sealing.py",
    ),  # schemas: negative losses
    Mutant(
        "storage/schemas.py",
        'ConfigDict(strict=True, extra="allow", allow_inf_nan=False)',
        'ConfigDict(extra="allow")',
        "run/test_sealing.py",
    ),  # schemas: true is a number
    Mutant(
        "storage/files.py", "if _levels(value) > MOST_LEVELS:", "if False:", "storage/test_files.py"
    ),  # files: deep nesting
    Mutant(
        "storage/files.py",
        "if seal != digest_of(tree):",
        "if False:",
        "study/test_bench.py study/test_study_registration.py",
    ),  # files: seals of single files
    Mutant(
        "run/directory.py", "for name in CHECKPOINT_FILES:", "for name in ():", "faults/test_damaged_checkpoints.py"
    ),  # manifests: may name no files
    Mutant(
        "storage/files.py",
        'raise Damaged(manifest, f"names {str(name)[:80]!r}, which is not a file in its folder")',
        "pass",
        "faults/test_damaged_checkpoints.py",
    ),  # manifests: may leave their folder
    Mutant(
        "execution/verification/recomputing.py",
        "if not math.isclose(reported, seen.loss, rel_tol=said.tolerance):",
        "if False:",
        "execution/verification/test_recomputing.py",
    ),  # verify: any loss will do
    Mutant(
        "execution/verification/recomputing.py",
        'check_progress(directory, result, read_state(checkpoint)["progress"])',
        "pass",
        "execution/verification/test_recomputing.py",
    ),  # verify: the last checkpoint is not heard
    Mutant(
        "study/kept_choices.py", "kept[arm], grid = choice_of(decision)", "continue", "study/test_kept_choices.py"
    ),  # choices: made anew each time
    Mutant(
        "study/halving.py", "return fmean(differences[:-1])", "return fmean(differences)", "study/test_halving.py"
    ),  # halving: one seed drops a value
    Mutant(
        "study/kept_choices.py", "rounds[done.arm, done.number] = done", "pass", "study/test_rates.py"
    ),  # halving: rounds are decided anew each time
    Mutant(
        "study/registration.py",
        "changes: tuple[tuple[str, Any, Any], ...] = ()  # key, registered, now",
        "changes = ()",
        "study/test_study_registration.py",
    ),  # registrations: changes are not told
    Mutant("study/doubts.py", "if not left:", "if True:", "study/test_strays.py"),  # edited studies: nobody is a stray
    Mutant(
        "study/doubts.py",
        "if place_of(then) != place_of(expected):",
        "if False:",
        "study/test_doubts.py",
    ),  # edited studies: any execution is the declared one
    Mutant(
        "study/doubts.py", "if len(by_seed) > 1:", "if False:", "study/test_doubts.py"
    ),  # seeds: a copy is a run of its own
    Mutant(
        "execution/verification/several.py",
        "return bool(self.copies or self.damaged_beside) or",
        "return bool(self.damaged_beside) or",
        "execution/verification/test_several.py",
    ),  # seeds: verify takes a copy for a run of its own
    Mutant(
        "study/kept_choices.py",
        "early = sum(time < made for time in started if time is not None)",
        "early = 0",
        "study/test_kept_choices.py",
    ),  # choices: believed about when they were made
    Mutant(
        "cli/options.py", 'raise UserError(f"--runs {path}: no such folder")', "pass", "test_cli.py"
    ),  # folders: a mistyped one is empty
    Mutant(
        "study/archives.py", 'raise UserError(f"{named}: no such archive")', "pass", "study/test_archives.py"
    ),  # archives: a mistyped one is an empty folder
    Mutant(
        "storage/files.py",
        "flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC",
        "flags | os.O_CREAT | os.O_CLOEXEC",
        "storage/test_ownership.py faults/test_links.py",
    ),  # links: logs and locks follow them
    Mutant(
        "storage/files.py",
        "raise _linked(path, os.readlink(path))\n\n\ndef open_own",
        "pass\n\n\ndef open_own",
        "faults/test_links.py",
    ),  # links: folders are cleared through them
    Mutant(
        "storage/whole_folder.py",
        "folder = new_folder(temporary_name(target))",
        "target.mkdir(parents=True, exist_ok=True)\n    yield target\n    return\n    folder = target",
        "storage/test_whole_folder.py show/test_report.py",
    ),  # reports: written in place
    Mutant(
        "machine/visible.py",
        "return _ACTS.sub(lambda found: _escape(ord(found.group())), str(text))",
        "return str(text)",
        "machine/test_visible.py faults/test_control_characters.py",
    ),  # control characters: raw
    Mutant(
        "storage/ownership.py",
        "and not (owner.has_another_clock and owner == dead)",
        "",
        "storage/test_ownership.py faults/test_lock.py",
    ),  # locks: a clock ahead blocks for ever
    Mutant(
        "study/bench.py",
        "half = max(half, abs(off) + uncertain)",
        "pass",
        "study/test_bench.py execution/timing/test_blocks.py",
    ),  # bench: the control widens nothing
    Mutant(
        "execution/timing/blocks.py",
        "shuffled.sample(list(contenders), len(contenders)), steps)",
        "list(contenders), steps)",
        "execution/timing/test_blocks.py",
    ),  # bench: one order for all blocks
    Mutant(
        "execution/timing/blocks.py",
        "return [cause for cause, is_beyond in beyond.items() if is_beyond]",
        "return []",
        "execution/timing/test_circumstances.py",
    ),  # bench: nothing disturbs
    Mutant(
        "study/bench.py",
        "return len(self.quiet) < LEAST_BLOCKS <= self.blocks",
        "return False",
        "study/test_bench.py analysis/test_hypotheses.py",
    ),  # bench: a busy machine decides
    Mutant(
        "study/bench.py",
        "return self.smallest is not None and self.high < self.smallest",
        "return False",
        "study/test_bench.py analysis/test_hypotheses.py",
    ),  # bench: everything is plausible
    Mutant(
        "study/bench_fit.py",
        "return stated_differences(found, step_settings(declared))",
        "return ()",
        "study/test_bench_fit.py analysis/test_hypotheses.py",
    ),  # bench: any config will do
    Mutant(
        "study/bench_fit.py",
        "if not beside.can_decide or not usable:",
        "if True:",
        "study/test_bench_fit.py execution/timing/test_interleaved.py",
    ),  # bench: the last one stays
    Mutant(
        "study/bench_fit.py", "bench = _by_config(bench, plan, facts)", "pass", "study/test_bench_fit.py"
    ),  # bench: arms go by their names
    Mutant(
        "run/training/device.py",
        "torch.use_deterministic_algorithms(deterministic)",
        "torch.use_deterministic_algorithms(deterministic, warn_only=True)",
        "run/training/test_determinism.py",
    ),  # GPUs: attention may differ from run to run
    Mutant(
        "machine/gpus.py", "    if here and not usable:\n", "    if False:\n", "machine/test_gpus.py"
    ),  # GPUs: all busy is taken for none here
    Mutant(
        "execution/progress.py",
        "        return None\n    return moved",
        "        return None\n    return None",
        "execution/test_standing_still.py",
    ),  # hung processes: nobody is still
    Mutant(
        "run/training/memory.py", "if needed > available:", "if False:", "run/training/test_memory.py"
    ),  # memory: everything fits
    Mutant(
        "machine/exhaustion.py",
        "if disk.f_files and disk.f_favail < FEW_INODES and free_bytes > needed_bytes:",
        "if False:",
        "faults/test_limits.py machine/test_exhaustion.py",
    ),  # resources: no inodes are a full disk
    Mutant(
        "study/archives.py",
        'raise Damaged(archive, f"its files are not those that {LIST} names")',
        "pass",
        "study/test_archives.py",
    ),  # archives: files need not be those of the list
    Mutant(
        "data/folders.py", "if files.get(name) == entry", "if name in files", "data/test_remembered.py"
    ),  # data: whatever was once whole still is
    Mutant(
        "core/sources.py",
        "scheme_of(each) if key == SOURCE_DIGEST else 0",
        "0",
        "core/test_sources.py study/test_confounds.py",
    ),  # sources: digests of any scheme are compared
    Mutant(
        "storage/metric_records.py",
        "while len(self.kept) > MOST_POINTS + len(self.also):",
        "while False:",
        "storage/test_metric_records.py",
    ),  # metrics: all of a long stream is kept
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--list", action="store_true", help="the rows, and whether what they change stands there once")
    asked = parser.parse_args()
    chosen = [each for each in MUTANTS if not asked.words or any(word in str(each) for word in asked.words)]
    misplaced = [line for each in chosen if (line := misplaced_line(each))]
    if misplaced or asked.list:
        print("\n".join(misplaced) or f"{len(chosen)} faults, each with its place")
        return int(bool(misplaced))
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


def misplaced_line(mutant: Mutant) -> str | None:
    """What keeps a fault from being planted, or its tests from being run."""
    count = (REPOSITORY / "src/oelm" / mutant.file).read_text(encoding="utf-8").count(mutant.old)
    missing = [each for each in mutant.tests.split() if not (REPOSITORY / "tests" / each).exists()]
    if count == 1 and not missing:
        return None
    return f"{mutant.file}: {mutant.old!r} stands there {count} times, not once; missing tests: {missing}"


def _planted(mutant: Mutant, copy: Path, number: int, of: int) -> bool:
    """Whether its tests turn red."""
    file = copy / "src/oelm" / mutant.file
    text = file.read_text(encoding="utf-8")
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
    found = done.returncode == 1  # another code: the tests did not run to their end
    last = (done.stdout.strip().splitlines() or ["no output"])[-1].strip("= ")
    print(
        f"[{number}/{of}] {'found' if found else 'NOT FOUND'}: {mutant.file}: {mutant.new.strip()[:60]!r}: {last}",
        flush=True,
    )
    return found


if __name__ == "__main__":
    sys.exit(main())
