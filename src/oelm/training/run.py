"""One run: the only place where config, data, model, optimizer and run directory are put together.

`train` assembles and drives; the loop yields, the driver acts. A new periodic action is two lines in `_drive`.
"""

from __future__ import annotations

import contextlib
import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from oelm.config import Execution, Run, fingerprint, resolved, stored_form
from oelm.data.batches import TrainingBatches, ValidationSequences
from oelm.data.tokens import TokenData, check_tokens, open_tokens
from oelm.errors import UserError
from oelm.files import ensure_writable, explaining_a_full_disk, read_json, write_json
from oelm.model.initialization import build
from oelm.model.parameters import combined_digest, counts_by_part, frozen_names, parameter_digests, rules
from oelm.model.transformer import GPT
from oelm.run_directory import RunDirectory, State, now
from oelm.settings import stored_run
from oelm.training import distributed
from oelm.training.checkpoint import latest_whole, load_checkpoint, save_checkpoint
from oelm.training.device import Machine, prepare_process, resolve_machine
from oelm.training.distributed import World
from oelm.training.evaluation import perplexity, validation_loss
from oelm.training.freezing import Schedule, Watch
from oelm.training.journal import Journal, Silent, duration
from oelm.training.loop import Diverged, StepResult, diverged, optimization_steps
from oelm.training.optimizer import build_optimizer
from oelm.training.provenance import changed_settings, environment
from oelm.training.signals import Interrupted, StopRequest
from oelm.training.stored_model import save_best

GPT2_VOCABULARY = 50257  # of bare token files, which do not say


@dataclass(frozen=True)
class Outcome:
    """What a finished run knows about itself, as stored in experiment_result.json."""

    directory: RunDirectory
    result: dict[str, Any]
    was_finished: bool


def run_with_data(run: Run) -> tuple[Run, TokenData]:
    """Open the data a run names, check it, and resolve what depends on it."""
    data = open_tokens(Path(run.data))
    run = resolved(run, data_vocabulary=data.vocabulary or GPT2_VOCABULARY)
    if run.training.validation_split not in data.splits:
        raise UserError(
            f"training.validation_split: {run.data} has no split {run.training.validation_split}, "
            f"only {', '.join(data.splits)}"
        )
    check_tokens(data, seq_len=run.model.seq_len, vocabulary=run.model.vocabulary)
    return run, data


def default_directory(run: Run, data: TokenData, *, group: str) -> Path:
    """Where a run goes that was given no folder: one folder for each distinct computation."""
    seeds = "-".join(str(seed) for seed in dict.fromkeys(run.seeds.model_dump().values()))
    return Path("runs") / group / f"{run.arm}-s{seeds}-{fingerprint(run, data_digest=data.digest)}"


def train(run: Run, execution: Execution | None = None, *, out: Path | str) -> Outcome:
    """Train one arm into `out`, or go on where it stopped, or say that it is finished."""
    execution = execution or Execution()
    run, data = run_with_data(run)
    world = distributed.world_from_environment()
    if world.size > run.training.batch_size:
        raise UserError(f"training.batch_size {run.training.batch_size} is less than the {world.size} processes")
    machine, reasons = resolve_machine(execution, run, local_rank=world.local_rank, world_size=world.size)
    prepare_process(machine)
    with distributed.joined(world, device_kind=machine.kind):
        directory = RunDirectory(Path(out))
        if world.is_main:
            return _as_owner(run, data, execution, directory, machine=machine, reasons=reasons, world=world)
        return _as_companion(run, data, execution, directory, machine=machine, world=world)


# ---- Owning the directory ------------------------------------------------------------------------------------------

FINISHED, FRESH = "finished", "fresh"


def _as_owner(
    run: Run,
    data: TokenData,
    execution: Execution,
    directory: RunDirectory,
    *,
    machine: Machine,
    reasons: list[str],
    world: World,
) -> Outcome:
    """The first process: it locks, writes and reports; what happens to the run is written before it leaves."""
    ensure_writable(directory.path)
    with directory.locked():
        _refuse_another_run(directory, run, data.digest)
        status = directory.status() or {}
        if status.get("state") == "finished" and directory.result_file.exists():
            world.broadcast_text(FINISHED)
            return Outcome(directory, read_json(directory.result_file), was_finished=True)
        if status.get("state") == "diverged":
            raise Diverged(f"{directory.path}: {status.get('error')}; a diverged run is not started again")
        journal = Journal(directory.log_file)
        with explaining_a_full_disk(directory.path, needed_bytes=12 * 2**20):
            _write_start(directory, run, data, machine=machine, world=world, journal=journal)
            for reason in reasons:
                journal.say(reason)
            checkpoint = latest_whole(directory, say=journal.warn)
            world.broadcast_text(str(checkpoint) if checkpoint else FRESH)
            return _reporting_its_end(
                directory,
                lambda: _Trainer(run, data, execution, directory, machine, world, journal).go(checkpoint),
            )


def _as_companion(
    run: Run, data: TokenData, execution: Execution, directory: RunDirectory, *, machine: Machine, world: World
) -> Outcome:
    word = world.broadcast_text(None)
    if word == FINISHED:
        return Outcome(directory, {}, was_finished=True)
    checkpoint = None if word == FRESH else Path(word)
    return _Trainer(run, data, execution, directory, machine, world, Silent()).go(checkpoint)


def _refuse_another_run(directory: RunDirectory, run: Run, data_digest: str) -> None:
    """A folder holds one run: a config or data that differ are shown key by key."""
    if not directory.config_file.exists():
        return
    before = _flat(
        stored_run(read_json(directory.config_file), name=str(directory.config_file)).model_dump(mode="json")
    )
    after = _flat(run.model_dump(mode="json"))
    if directory.environment_file.exists():
        before["data digest"] = read_json(directory.environment_file).get("data_digest")
        after["data digest"] = data_digest
    lines = [
        f"{directory.path}: {key} is {before.get(key)} there and {after.get(key)} here"
        for key in sorted(before.keys() | after.keys())
        if before.get(key) != after.get(key) and key not in ("arm", "data")
    ]
    if lines:
        raise UserError("\n".join([*lines, "the folder holds another run; choose another --out or undo the change"]))


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _write_start(
    directory: RunDirectory, run: Run, data: TokenData, *, machine: Machine, world: World, journal: Journal
) -> None:
    write_json(directory.config_file, stored_form(run))
    found = environment(machine, world_size=world.size, data_digest=data.digest)
    if directory.environment_file.exists():
        for line in changed_settings(read_json(directory.environment_file), found):
            journal.warn(f"{line}; the result may differ in its last bits from an uninterrupted run")
    write_json(directory.environment_file, found)
    directory.clear_leftovers()
    directory.close_torn_line()
    directory.write_status("running", started=now(), steps=run.training.steps)
    journal.say(f"{run.arm} in {directory.path}: {machine}, {world.size} process{'es' * (world.size > 1)}")


def _reporting_its_end(directory: RunDirectory, work: Callable[[], Outcome]) -> Outcome:
    """Write how the run ended, whatever ends it. A full disk may refuse even that; the error is shown all the same."""

    def ended(state: State, error: BaseException) -> None:
        with contextlib.suppress(OSError):
            directory.write_status(state, error=str(error) or type(error).__name__, ended=now())

    try:
        return work()
    except (Interrupted, KeyboardInterrupt) as error:
        ended("interrupted", error)
        raise
    except Diverged as error:
        ended("diverged", error)
        raise
    except BaseException as error:
        ended("failed", error)
        raise


# ---- Driving the loop ----------------------------------------------------------------------------------------------


@dataclass
class _Progress:
    """What a checkpoint remembers besides weights and moments."""

    step: int = 0
    training_seconds: float = 0.0
    validation_seconds: float = 0.0
    wall_seconds: float = 0.0
    resumes: int = 0
    clipped_steps: int = 0
    loss_sum: float = 0.0  # since the last record
    loss_steps: int = 0
    clipped_since: int = 0
    last_train_loss: float | None = None
    last_val_loss: float | None = None
    best_val_loss: float | None = None
    best_step: int | None = None


class _Trainer:
    """The parts of one run, alive between its start and its end."""

    def __init__(
        self,
        run: Run,
        data: TokenData,
        execution: Execution,
        directory: RunDirectory,
        machine: Machine,
        world: World,
        journal: Journal,
    ) -> None:
        self.run, self.data, self.directory, self.machine, self.world = run, data, directory, machine, world
        self.execution, self.journal = execution, journal
        training = run.training
        self.checkpoint_every = execution.checkpoint_every or max(1, min(5000, training.steps // 10))
        self.log_every = execution.log_every or max(1, min(100, training.steps // 200))
        self.batches = TrainingBatches(data.splits["train"], run.model.seq_len, training.batch_size, run.seeds.data)
        assert training.validation_sequences is not None
        self.sequences = ValidationSequences(
            data.splits[training.validation_split], run.model.seq_len, training.validation_sequences
        )
        self.gpt, self.optimizer, self.schedule = assembled(run, machine)
        self.progress = _Progress()
        self.began = time.perf_counter()
        self.metrics_board = self._metrics_board()

    def _metrics_board(self) -> Any:
        if not self.execution.tensorboard or not self.world.is_main:
            return None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError("execution.tensorboard: needs an extra: pip install 'oelm[tensorboard]'") from error
        return SummaryWriter(str(self.directory.tensorboard))

    # -- start and end -----------------------------------------------------------------------------------------------

    def go(self, checkpoint: Path | None) -> Outcome:
        watch = Watch.begin(self.schedule, self.gpt, 0)
        if checkpoint is not None:
            watch = self._resume(checkpoint, watch)
        if self.world.is_main:
            self._write_parameters()
        stop = StopRequest(world_size=self.world.size)
        try:
            with stop.listening():
                self._drive(watch, stop)
        finally:
            self.journal.end()
        return self._finish()

    def _resume(self, checkpoint: Path, fresh: Watch) -> Watch:
        state = load_checkpoint(checkpoint, model=self.gpt, optimizer=self.optimizer)
        self.progress = _Progress(**state["progress"])
        self.progress.resumes += 1
        # Weights that have rested since the start must be the seed's own, those that rested later the recorded ones.
        since_start = Watch(self.schedule, 0, fresh.digests)
        since_start.check(self.gpt, self.progress.step)
        recorded = Watch(self.schedule, self.progress.step, state["digests"])
        recorded.check(self.gpt, self.progress.step)
        self.journal.say(f"resuming from step {self.progress.step} of {self.run.training.steps} ({checkpoint.name})")
        return recorded

    def _finish(self) -> Outcome:
        if not self.world.is_main:
            return Outcome(self.directory, {}, was_finished=False)
        result = self._result()
        write_json(self.directory.timing_file, _timing_stats(self.run, result))
        write_json(self.directory.result_file, result)
        self.directory.write_status("finished", step=self.progress.step, ended=now())
        self.journal.say(
            f"finished: validation loss {result['val_loss']:.4f}, perplexity {result['perplexity'] or math.inf:.3f}, "
            f"{result['trainable']:,} trainable and {result['frozen']:,} frozen parameters, "
            f"training {duration(result['training_seconds'])}, validation {duration(result['validation_seconds'])}"
        )
        return Outcome(self.directory, result, was_finished=False)

    # -- the driver --------------------------------------------------------------------------------------------------

    def _drive(self, watch: Watch, stop: StopRequest) -> None:
        self.journal.begin(step=self.progress.step, steps=self.run.training.steps)
        steps = optimization_steps(
            self.gpt,
            self.optimizer,
            self.batches,
            self.run,
            schedule=self.schedule,
            machine=self.machine,
            world=self.world,
            start=self.progress.step,
            stop_requested=stop,
        )
        training = self.run.training
        assert training.validate_every is not None
        for result in steps:
            self._note(result)
            last = result.step == training.steps
            if last or result.step % self.log_every == 0:
                self._record_training(result)
            if last or result.step % training.validate_every == 0:
                self._validate(result)
            if last or result.stop_requested or result.step % self.checkpoint_every == 0:
                stop_now = result.stop_requested and not last
                if stop_now:
                    stop.acknowledge()
                watch.check(self.gpt, result.step)
                if not all(parameter.isfinite().all() for parameter in self.gpt.parameters()):
                    raise diverged(result.step, "a weight is not finite", result.learning_rate)
                self._save(watch)
                if stop_now:
                    raise Interrupted(f"stopped at step {result.step} of {training.steps}, saved", stop.number)

    def _note(self, result: StepResult) -> None:
        progress = self.progress
        progress.step = result.step
        progress.training_seconds += result.seconds
        progress.loss_sum += result.loss
        progress.loss_steps += 1
        progress.clipped_steps += result.clipped
        progress.clipped_since += result.clipped
        self.journal.advance(result.step, f"loss {result.loss:.4f}  {self._tokens_per_second(result):,.0f} tokens/s")

    def _tokens_per_second(self, result: StepResult) -> float:
        return self.run.training.batch_size * self.run.model.seq_len / result.seconds

    def _tokens(self) -> int:
        return self.progress.step * self.run.training.batch_size * self.run.model.seq_len

    def _record_training(self, result: StepResult) -> None:
        progress = self.progress
        progress.last_train_loss = progress.loss_sum / progress.loss_steps
        record = {
            "step": result.step,
            "tokens": self._tokens(),
            "seconds": round(progress.training_seconds, 4),
            "train_loss": progress.last_train_loss,
            "learning_rate": result.learning_rate,
            "gradient_norm": result.gradient_norm,
            "clipped_fraction": progress.clipped_since / progress.loss_steps,
        }
        progress.loss_sum, progress.loss_steps, progress.clipped_since = 0.0, 0, 0
        self._append(record)
        mean_step = progress.training_seconds / progress.step
        left = (self.run.training.steps - result.step) * mean_step
        self.journal.progress(
            f"step {result.step}/{self.run.training.steps}  loss {record['train_loss']:.4f}  "
            f"learning rate {result.learning_rate:.3g}  gradient norm {result.gradient_norm:.3f}  "
            f"clipped {record['clipped_fraction']:.0%}  {self._tokens_per_second(result):,.0f} tokens/s  "
            f"ETA {duration(left)}"
        )

    def _validate(self, result: StepResult) -> None:
        step = result.step
        self.machine.synchronize()
        began = time.perf_counter()
        loss = validation_loss(self.gpt, self.sequences, machine=self.machine, world=self.world)
        self.machine.synchronize()
        if not math.isfinite(loss):
            raise diverged(step, f"validation loss {loss}", result.learning_rate)
        progress = self.progress
        progress.validation_seconds += time.perf_counter() - began
        progress.last_val_loss = loss
        record = {
            "step": step,
            "tokens": self._tokens(),
            "seconds": round(progress.training_seconds, 4),
            "validation_seconds": round(progress.validation_seconds, 4),
            "val_loss": loss,
            "perplexity": finite(perplexity(loss)),
        }
        self._append(record)
        best = progress.best_val_loss is None or loss < progress.best_val_loss
        if best:
            progress.best_val_loss, progress.best_step = loss, step
            if self.world.is_main:
                save_best(self.directory, self.gpt, self.run, self.data, step=step, val_loss=loss)
        if self.world.is_main:
            self.directory.write_status("running", step=step, val_loss=loss)
        self.journal.say(
            f"step {step}/{self.run.training.steps}  validation loss {loss:.4f}  perplexity {perplexity(loss):.3f}"
            f"{'  (best)' * best}"
        )

    def _append(self, record: dict[str, Any]) -> None:
        if not self.world.is_main:
            return
        self.directory.append_metrics(record)
        if self.metrics_board is not None:
            for key in record.keys() - {"step"}:
                if record[key] is not None:
                    self.metrics_board.add_scalar(key, record[key], record["step"])

    def _save(self, watch: Watch) -> None:
        if self.world.is_main:
            progress = _Progress(**vars(self.progress))
            progress.wall_seconds += time.perf_counter() - self.began
            save_checkpoint(
                self.directory,
                progress.step,
                model=self.gpt,
                optimizer=self.optimizer,
                state={"step": progress.step, "progress": vars(progress), "digests": watch.digests},
                keep=self.execution.keep_checkpoints,
            )
            self.directory.write_status("running", step=progress.step)
        self.world.barrier()

    # -- what is written about the run -------------------------------------------------------------------------------

    def _write_parameters(self) -> None:
        counts = counts_by_part(self.gpt)
        total, frozen = (sum(column) for column in zip(*counts.values(), strict=True))
        bytes_per_weight = self.machine.dtype.itemsize
        digests = parameter_digests(self.gpt, frozen_names(self.gpt))
        write_json(
            self.directory.parameters_file,
            {
                "total": total,
                "trainable": total - frozen,
                "frozen": frozen,
                "weight_bytes": total * bytes_per_weight,
                "gradient_bytes": (total - frozen) * bytes_per_weight,
                "optimizer_bytes": 2 * (total - frozen) * bytes_per_weight,
                "frozen_digest": combined_digest(digests) if digests else None,
                "parts": [
                    {"role": role, "layer": layer, "total": count, "trainable": count - resting, "frozen": resting}
                    for (role, layer), (count, resting) in counts.items()
                ],
            },
        )

    def _result(self) -> dict[str, Any]:
        progress, parameters = self.progress, read_json(self.directory.parameters_file)
        assert progress.last_val_loss is not None
        assert progress.best_val_loss is not None
        return {
            "arm": self.run.arm,
            "fingerprint": fingerprint(self.run, data_digest=self.data.digest),
            "seeds": self.run.seeds.model_dump(),
            "steps": progress.step,
            "tokens": self._tokens(),
            "train_loss": progress.last_train_loss,
            "val_loss": progress.last_val_loss,
            "perplexity": finite(perplexity(progress.last_val_loss)),
            "best_val_loss": progress.best_val_loss,
            "best_perplexity": finite(perplexity(progress.best_val_loss)),
            "best_step": progress.best_step,
            "validation_split": self.run.training.validation_split,
            "validation_tokens": len(self.sequences) * self.run.model.seq_len,
            "learning_rate": self.run.training.learning_rate,
            "total": parameters["total"],
            "trainable": parameters["trainable"],
            "frozen": parameters["frozen"],
            "frozen_digest": parameters["frozen_digest"],
            "clipped_fraction": progress.clipped_steps / progress.step,
            "training_seconds": progress.training_seconds,
            "validation_seconds": progress.validation_seconds,
            "wall_seconds": progress.wall_seconds + time.perf_counter() - self.began,
            "mean_step_seconds": progress.training_seconds / progress.step,
            "tokens_per_second": self._tokens() / progress.training_seconds,
            "peak_memory_bytes": peak_memory_bytes(self.machine),
            "resumes": progress.resumes,
            "world_size": self.world.size,
            **{
                key: value for key, value in self.machine.as_json().items() if key in ("device", "precision", "compile")
            },
        }


def assembled(run: Run, machine: Machine) -> tuple[GPT, torch.optim.AdamW, Schedule]:
    """The model with its starting values on its device, its optimizer, and when each weight moves."""
    gpt = build(run.model, run.seeds).to(machine.device, machine.dtype)
    # The output layer's gradient is dense; the embedding's part of it is then added row by row, in place.
    gpt.token_embedding.sparse = machine.kind == "cpu"
    if machine.compile:
        compile_blocks(gpt)
    schedule = Schedule(rules(gpt), steps=run.training.steps, num_layers=run.model.num_layers)
    return gpt, build_optimizer(gpt, run.training), schedule


def compile_blocks(gpt: GPT) -> None:
    """Compile one block's code for all layers. Every state of requires_grad and every shape has its own graph, so
    falling back to eager when there are too many must be an error, not a silent change of the arithmetic."""
    torch._dynamo.config.recompile_limit = 64
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    for block in gpt.blocks:
        block.compile(dynamic=False)


def finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None


def peak_memory_bytes(machine: Machine) -> int:
    if machine.kind == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _timing_stats(run: Run, result: dict[str, Any]) -> dict[str, Any]:
    """The documents' names."""
    return {
        "model_type": run.arm,
        "init_method": run.model.attention.query.start,
        "final_perplexity": result["perplexity"],
        "total_wall_time": result["wall_seconds"],
        "mean_step_time": result["mean_step_seconds"],
        "total_validation_time": result["validation_seconds"],
    }
