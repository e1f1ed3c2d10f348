"""Schedules for transformers.Trainer: what rests at an update has no gradient when its optimizer steps.

The Trainer builds its optimizer from whatever requires a gradient before training begins; `apply` leaves that on for
all that ever moves, so late-thawed weights are in it from the start. AdamW passes over a parameter without a gradient:
no decay, no momentum, no count.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from oelm.core.model.freezing import FrozenWeightChanged, Schedule, Watch
from oelm.core.model.parameters import rules
from oelm.core.moves import Never
from oelm.machine.errors import UserError
from oelm.models.adaptation.adapting import FIELD
from oelm.models.applying import changed_since_applied
from oelm.models.library import transformers


class FreezeCallback(transformers.TrainerCallback):
    """Moves an adapted model's weights by their schedule, and proves that what had to rest did.

    Updates are the optimizer's, not micro-batches; fractions are of the Trainer's max_steps. Digests are compared at
    the beginning, at each save, after each epoch and at the end.
    """

    def __init__(self) -> None:
        self._schedule = Schedule({}, steps=0, num_layers=0)  # until training begins, nothing is governed
        self._watch = Watch(self._schedule, 0, {})

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """What an earlier training left at rest must be seen when the optimizer is built. PEFT's freezing stands."""
        if not hasattr(kwargs["model"], "peft_config"):
            _require_gradients(kwargs["model"])

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model: nn.Module = kwargs["model"]
        found = rules(model)
        layers = [rule.layer for rule in found.values() if rule.layer is not None]
        self._schedule = Schedule(found, steps=state.max_steps, num_layers=1 + max(layers, default=0))
        if not any(hasattr(module, "oelm_moves") for module in model.modules()):
            raise UserError("FreezeCallback: no arm was applied to the model; call oelm.apply (or oelm.load) first")
        _check_optimizer(self._schedule, model, kwargs["optimizer"])
        _check_digests(model)
        self._watch = Watch.begin(self._schedule, model, state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._schedule.apply(kwargs["model"], state.global_step + 1)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._watch.check(kwargs["model"], state.global_step)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._watch.check(kwargs["model"], state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """By now the Trainer may have put back its best weights: only what never moves has to be what it was."""
        _check_digests(kwargs["model"])
        _require_gradients(kwargs["model"])


def _require_gradients(model: nn.Module) -> None:
    parameters = dict(model.named_parameters())
    for name, rule in rules(model).items():
        if rule.moves.kind not in ("always", "never"):
            parameters[name].requires_grad_(True)


def _check_optimizer(schedule: Schedule, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    parameters = dict(model.named_parameters())
    missing = [
        name
        for name in schedule.may_rest
        if not isinstance(schedule.rules[name].moves, Never) and id(parameters[name]) not in held
    ]
    if missing:
        raise UserError(
            f"FreezeCallback: the optimizer is missing weights that move by a schedule: {', '.join(missing)}; build it "
            "from all that requires a gradient before training (PEFT switches that off for the whole model)"
        )


def _check_digests(model: nn.Module) -> None:
    if getattr(model.config, FIELD, None) is None:  # adapted without `apply`: nothing was noted
        return
    changed = changed_since_applied(model)
    if changed:
        raise FrozenWeightChanged(changed)
