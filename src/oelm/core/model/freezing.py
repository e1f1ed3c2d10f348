"""Which parameters move at an update, from their specs, and the proof that the others did not.

A resting parameter has requires_grad off, so it gets no gradient, and the optimizer passes over it: no decay, no
momentum, no count of updates. Compiled blocks are guarded on requires_grad, so each state has its own graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from torch import nn

from oelm.core.model.parameters import Rule, parameter_digests
from oelm.core.moves import After, Always, Before, Every, Moves, Never
from oelm.machine.errors import UserError


class FrozenWeightChanged(UserError):
    """A weight that had to rest is not what it was."""

    exit_code = 4


def moves_at(moves: Moves, step: int, *, steps: int, layer: int | None, num_layers: int) -> bool:
    """Whether update `step` (1 to `steps`) moves a parameter of this layer."""
    match moves:
        case Always():
            return True
        case Never():
            return False
        case Every():
            return step % moves.steps == 0
        case After():
            return step > thaw_fraction(moves, layer, num_layers) * steps
        case Before():
            return step <= moves.fraction * steps


def thaw_fraction(moves: After, layer: int | None, num_layers: int) -> float:
    """Layer by layer: the top one at `fraction`, the others at equal distances before the end."""
    if moves.order == "together" or layer is None:
        return moves.fraction
    above = num_layers - 1 - layer
    return moves.fraction + (1 - moves.fraction) * above / num_layers


@dataclass(frozen=True)
class Schedule:
    """When every parameter of one run moves."""

    rules: dict[str, Rule]
    steps: int
    num_layers: int
    # Of a model that it was applied to: what may rest. Looking for it by name takes longer than setting it.
    _found: WeakKeyDictionary[nn.Module, dict[str, nn.Parameter]] = field(
        default_factory=WeakKeyDictionary, init=False, repr=False, compare=False
    )

    def moves(self, name: str, step: int) -> bool:
        rule = self.rules[name]
        return moves_at(rule.moves, step, steps=self.steps, layer=rule.layer, num_layers=self.num_layers)

    def rests_between(self, name: str, first: int, last: int) -> bool:
        """True if no update in first..last moves the parameter."""
        return not any(self.moves(name, step) for step in range(first, last + 1))

    @property
    def may_rest(self) -> list[str]:
        return [name for name, rule in self.rules.items() if not isinstance(rule.moves, Always)]

    def apply(self, model: nn.Module, step: int) -> None:
        """Set requires_grad for update `step`; gradients of resting parameters are absent, not zero."""
        found = self._found.get(model)
        if found is None:
            parameters = dict(model.named_parameters())
            found = self._found[model] = {name: parameters[name] for name in self.may_rest}
        for name, parameter in found.items():
            moving = self.moves(name, step)
            parameter.requires_grad_(moving)
            if not moving:
                parameter.grad = None


class Watch:
    """Digests of everything that may rest, taken at start, checkpoint, resume and end, and compared."""

    def __init__(self, schedule: Schedule, step: int, digests: dict[str, str]) -> None:
        self._schedule = schedule
        self.step = step
        self.digests = digests

    @classmethod
    def begin(cls, schedule: Schedule, model: nn.Module, step: int) -> Watch:
        return cls(schedule, step, parameter_digests(model, schedule.may_rest))

    def check(self, model: nn.Module, step: int) -> None:
        """Stop the run if a parameter that rested since the last look has changed."""
        found = parameter_digests(model, self._schedule.may_rest)
        changed = [
            name
            for name, digest in found.items()
            if digest != self.digests.get(name) and self._schedule.rests_between(name, self.step + 1, step)
        ]
        if changed:
            raise FrozenWeightChanged(
                f"frozen weight changed between steps {self.step} and {step}: {', '.join(changed)} (digest differs); "
                "the run is stopped, its last good checkpoint is kept"
            )
        self.step, self.digests = step, found
