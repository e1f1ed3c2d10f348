"""The driver: it reads the loop and acts. A new periodic action is two lines in `_drive`.

Only the first process writes; the others take the same steps and the same decisions.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from oelm.core.config import Execution, GptRun, ResolvedRun
from oelm.core.model.freezing import Watch
from oelm.core.model.transformer import GPT
from oelm.core.trackers.beside import Trackers
from oelm.core.trackers.table import Tracked
from oelm.data.floor import floor_of
from oelm.data.folders import Data
from oelm.machine.durations import duration
from oelm.models.heads.gpt import recorded_on, recorded_scores
from oelm.models.heads.scores import Sequences
from oelm.run.directory import RunDirectory, tracked
from oelm.run.sealing import seal_run
from oelm.run.training.assembly import assembled
from oelm.run.training.best_model import BestModel, best_saver
from oelm.run.training.checkpoint import load_checkpoint, save_checkpoint
from oelm.run.training.device import Machine, graphs_compiled
from oelm.run.training.distributed import OtherProcessGone, World
from oelm.run.training.journal import Journal
from oelm.run.training.loop import Diverged, StepResult, accumulate_gradients, diverged, optimization_steps
from oelm.run.training.objective import Validation
from oelm.run.training.records import Progress, parameters_record, result_record
from oelm.run.training.signals import Interrupted, StopRequest
from oelm.storage.files import Damaged, write_json
from oelm.storage.metric_records import HEAD_SCORES, with_strongest_heads
from oelm.storage.ownership import now
from oelm.storage.schemas import Parameters, read_record

RECENT_STEPS = 100
REHEARSED = {"cuda"}  # where a step is tried before the first: nobody knows what it will take


@dataclass(frozen=True)
class TrainingJob:
    """One run, its data and its place; where and with whom it executes."""

    run: ResolvedRun
    data: Data
    directory: RunDirectory
    execution: Execution
    machine: Machine
    world: World


class Driver:
    """The parts of one run, alive between its start and its end."""

    def __init__(self, job: TrainingJob, journal: Journal) -> None:
        self.run, self.data, self.directory = job.run, job.data, job.directory
        self.execution, self.machine, self.world, self.journal = job.execution, job.machine, job.world, journal
        training, execution = job.run.training, job.execution
        self.checkpoint_every = execution.checkpoint_every or max(1, min(5000, training.steps // 10))
        self.log_every = execution.log_every or max(1, min(100, training.steps // 200))
        self.objective, self.optimizer, self.schedule = assembled(
            job.run, job.data, machine=job.machine, world=job.world
        )
        self.progress = Progress()
        self.best_model = BestModel()
        self.graphs = graphs_compiled()  # by this process, up to the last step or validation
        self.recent_seconds: deque[float] = deque(maxlen=RECENT_STEPS)  # of steps
        self.began = time.perf_counter()
        self.trackers = Trackers(job.execution.trackers if job.world.is_main else (), self._tracked, journal.warn)
        self.head_tokens: Sequences | None = None  # what heads are scored on, where they are
        if isinstance(job.run, GptRun) and training.head_scores:
            self.head_tokens = recorded_on(job.run)

    def _tracked(self, tracker: str) -> Tracked:
        folder = self.directory.trackers / tracker
        return tracked(self.directory, self.run, folder=folder, step=self.progress.step)

    def has_room(self) -> bool:
        """True if on every GPU of the run a step fits into memory: one is computed, beside what AdamW will keep."""
        if self.machine.kind not in REHEARSED:
            return True
        moving = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        fits = 1
        try:
            moments = [torch.empty_like(parameter) for parameter in (*moving, *moving)]
            self.schedule.apply(self.objective.model, 1)
            accumulate_gradients(self.objective, self.run, 1, machine=self.machine, world=self.world)
            del moments
        except torch.OutOfMemoryError:
            fits = 0
        self.optimizer.zero_grad(set_to_none=True)
        self.graphs = graphs_compiled()
        return self.world.least(fits) == 1

    # -- start and end -----------------------------------------------------------------------------------------------

    def go(self, checkpoint: Path | None) -> dict[str, Any]:
        """From a checkpoint or from the start to the end; returns the result (empty on other processes)."""
        watch = Watch.begin(self.schedule, self.objective.model, 0)
        if checkpoint is not None:
            watch = self._resume(checkpoint, watch)
        if self.world.is_main:
            write_json(self.directory.parameters_file, parameters_record(self.objective, self.machine))
        for line in self.objective.warnings:
            self.journal.warn(line)
        stop = StopRequest(world_size=self.world.size, slowest_step=lambda: max(self.recent_seconds, default=0.0))
        with self.trackers.at_work():
            return self._finish(self._driven(watch, stop))

    def _driven(self, watch: Watch, stop: StopRequest) -> Validation:
        """The final validation, after all steps."""
        try:
            with stop.listening(), self.best_model.over_at_the_end(self.journal.warn):
                self._drive(watch, stop)
                # What is reported: over more of the held-out data than the curve's.
                training, (last, _) = self.run.training, self._validated()
                final_rate = training.learning_rate * training.final_learning_rate_fraction
                return self._timed(lambda: self.objective.final_validation(last), final_rate)
        except Diverged as error:
            # Every process is here at the same step. None leaves before it is written down: torchrun ends the others.
            if self.world.is_main:
                seal_run(self.directory, "diverged", step=self.progress.step, error=str(error))
                self.directory.write_status("diverged", error=str(error), ended=now())
            with contextlib.suppress(OtherProcessGone):
                self.world.barrier()
            raise
        except OtherProcessGone as error:
            # Written down by the first process that still can, if that is not the one that owns the folder.
            if error.speaks and not self.world.is_main:
                with contextlib.suppress(OSError):
                    self.directory.write_status("failed", error=str(error), ended=now())
            raise
        finally:
            self.journal.end()

    def _resume(self, checkpoint: Path, fresh: Watch) -> Watch:
        state = load_checkpoint(checkpoint, model=self.objective.model, optimizer=self.optimizer)
        self.progress = Progress(**state["progress"])
        self.progress.resumes += 1
        # Weights that have rested since the start must be the seed's own, those that rested later the recorded ones.
        since_start = Watch(self.schedule, 0, fresh.digests)
        since_start.check(self.objective.model, self.progress.step)
        recorded = Watch(self.schedule, self.progress.step, state["digests"])
        recorded.check(self.objective.model, self.progress.step)
        self.journal.say(f"resuming from step {self.progress.step} of {self.run.training.steps} ({checkpoint.name})")
        return recorded

    def _finish(self, final: Validation) -> dict[str, Any]:
        if not self.world.is_main:
            return {}
        _, best_loss = self._validated()
        result = result_record(
            self.run,
            self.progress,
            machine=self.machine,
            world=self.world,
            data_digest=self.data.digest,
            tokens=self.objective.tokens_after(self.progress.step),
            val_loss=final.loss,
            measures=final.result | floor_of(self.data, self.run) | self.objective.best_result(best_loss),
            wall_seconds=self._wall_seconds(),
            parameters=read_record(self.directory.parameters_file, Parameters),
        )
        if final.predictions is not None:
            write_json(self.directory.predictions_file, final.predictions, indent=None)
        write_json(self.directory.result_file, result)
        seal_run(self.directory, "finished", step=self.progress.step)
        self.directory.write_status("finished", step=self.progress.step, ended=now())
        self.journal.say(
            f"finished: validation loss {final.loss:.4f}, {final.text}, "
            f"{result['trainable']:,} trainable and {result['frozen']:,} frozen parameters, "
            f"training {duration(result['training_seconds'])}, validation {duration(result['validation_seconds'])}"
        )
        return result

    def _wall_seconds(self) -> float:
        return self.progress.wall_seconds + time.perf_counter() - self.began

    # -- the driver --------------------------------------------------------------------------------------------------

    def _drive(self, watch: Watch, stop: StopRequest) -> None:
        self.journal.begin(step=self.progress.step, steps=self.run.training.steps)
        steps = optimization_steps(
            self.objective,
            self.optimizer,
            self.run,
            schedule=self.schedule,
            machine=self.machine,
            world=self.world,
            start=self.progress.step,
            stop_requested=stop,
        )
        training = self.run.training
        self.world.meet()
        for result in steps:
            self._note(result)
            last = result.step == training.steps
            if last or result.step % self.log_every == 0:
                self._record_training(result)
            if last or result.step % training.validate_every == 0:
                self._validate(result)
            if result.stop_requested or last or result.step % self.checkpoint_every == 0:
                stop_now = result.stop_requested and not last
                if stop_now:
                    stop.acknowledge()
                watch.check(self.objective.model, result.step)
                if not all(parameter.isfinite().all() for parameter in self.objective.model.parameters()):
                    raise diverged(result.step, "a weight is not finite", result.learning_rate)
                self._save(watch)
                if stop_now:
                    raise Interrupted(f"stopped at step {result.step} of {training.steps}, saved", stop.number)

    def _note(self, result: StepResult) -> None:
        progress = self.progress
        progress.step = result.step
        self.recent_seconds.append(result.seconds)
        progress.training_seconds += result.seconds
        if self.machine.compile and graphs_compiled() != self.graphs:
            self.graphs = graphs_compiled()
            progress.compiling_steps += 1
            progress.compiling_seconds += result.seconds
        progress.loss_sum += result.loss
        progress.loss_steps += 1
        progress.clipped_steps += result.clipped
        progress.clipped_since += result.clipped
        self.journal.advance(result.step, f"loss {result.loss:.4f}  {self._tokens_per_second(result):,.0f} tokens/s")

    def _tokens_per_second(self, result: StepResult) -> float:
        return (
            self.objective.tokens_after(result.step) - self.objective.tokens_after(result.step - 1)
        ) / result.seconds

    def _record_training(self, result: StepResult) -> None:
        progress = self.progress
        progress.last_train_loss = progress.loss_sum / progress.loss_steps
        record = {
            "step": result.step,
            "tokens": self.objective.tokens_after(self.progress.step),
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

    def _timed(self, look: Callable[[], Validation], learning_rate: float) -> Validation:
        self.machine.synchronize()
        began = time.perf_counter()
        seen = look()
        self.machine.synchronize()
        self.progress.validation_seconds += time.perf_counter() - began
        self.graphs = graphs_compiled()
        if not math.isfinite(seen.loss):
            raise diverged(self.progress.step, f"validation loss {seen.loss}", learning_rate)
        return seen

    def _validated(self) -> tuple[float, float]:
        """The last loss and the best. The last step of a run is validated, and its checkpoint remembers it."""
        last, best = self.progress.last_val_loss, self.progress.best_val_loss
        if last is None or best is None:
            raise Damaged(self.directory.path, f"the checkpoint of step {self.progress.step} knows of no validation")
        return last, best

    def _validate(self, result: StepResult) -> None:
        step = result.step
        seen = self._timed(self._look, result.learning_rate)
        loss, progress = seen.loss, self.progress
        progress.last_val_loss = loss
        record = {
            "step": step,
            "tokens": self.objective.tokens_after(step),
            "seconds": round(progress.training_seconds, 4),
            "validation_seconds": round(progress.validation_seconds, 4),
            "val_loss": loss,
            **seen.record,
        }
        self._append(record)
        best = progress.best_val_loss is None or loss < progress.best_val_loss
        if best:
            progress.best_val_loss, progress.best_step = loss, step
            if self.world.is_main:
                model = self.objective.model
                save = best_saver(self.directory, model, self.run, self.data, step=step, val_loss=loss)
                self.best_model.begin(save)
        if self.world.is_main:
            self.directory.write_progress(step=step, val_loss=loss)
        self.journal.validation(
            f"step {step}/{self.run.training.steps}  validation loss {loss:.4f}  {seen.text}{'  (best)' * best}"
        )

    def _look(self) -> Validation:
        """Scores of heads are those of the weights, which every process has: the first one computes them."""
        seen = self.objective.validation()
        if self.head_tokens is None or not isinstance(self.objective.model, GPT) or not self.world.is_main:
            return seen
        scores = recorded_scores(self.objective.model, self.head_tokens)
        return replace(seen, record=seen.record | {HEAD_SCORES: scores})

    def _append(self, record: dict[str, Any]) -> None:
        if not self.world.is_main:
            return
        self.directory.append_metrics(record)
        self.trackers.log(with_strongest_heads(record))

    def _save(self, watch: Watch) -> None:
        if self.world.is_main:
            progress = Progress(**vars(self.progress) | {"wall_seconds": self._wall_seconds()})
            self.best_model.wait()  # a checkpoint that knows of it must not be there before it
            self.directory.flush_metrics()
            save_checkpoint(
                self.directory,
                progress.step,
                model=self.objective.model,
                optimizer=self.optimizer,
                state={"step": progress.step, "progress": vars(progress), "digests": watch.digests},
                keep=self.execution.keep_checkpoints,
            )
            self.directory.write_progress(step=progress.step)
        size = sum(weight.numel() * weight.element_size() for weight in self.objective.model.parameters())
        self.world.barrier(saved_bytes=3 * size)
