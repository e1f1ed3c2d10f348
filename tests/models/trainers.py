"""transformers.Trainer on a few examples, with FreezeCallback, and a witness of what moves when."""

from __future__ import annotations

import torch
import transformers

import oelm
from tiny_transformers import Examples

STEPS = 10


class Movements(transformers.TrainerCallback):
    """At which updates each parameter moved."""

    def __init__(self) -> None:
        self.moved: dict[str, list[int]] = {}

    def on_step_begin(self, args, state, control, model, **kwargs):
        self._before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def on_step_end(self, args, state, control, model, **kwargs):
        for name, parameter in model.named_parameters():
            if not torch.equal(self._before[name], parameter):
                self.moved.setdefault(name, []).append(state.global_step)


def trainer_of(model, folder, *callbacks, steps: int = STEPS, **settings) -> transformers.Trainer:
    arguments = {
        "max_steps": steps,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "weight_decay": 0.1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "logging_strategy": "no",
        "use_cpu": True,
    } | settings
    return transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(str(folder), **arguments),
        train_dataset=Examples(model),
        eval_dataset=Examples(model),
        callbacks=[oelm.FreezeCallback(), *callbacks],
    )


def movements(model, folder, **settings) -> dict[str, list[int]]:
    seen = Movements()
    trainer_of(model, folder, seen, **settings).train()
    return seen.moved
