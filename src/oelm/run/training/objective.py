"""What one kind of run computes: the loss of a part of an update, and a look at held-out data.

The loop and the driver are the same for all kinds; an objective knows its model and its data, and nothing of files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn


@dataclass(frozen=True)
class Validation:
    """What a look at held-out data gives."""

    loss: float  # mean, in nats
    text: str  # what else a person reads of it
    record: dict[str, Any]  # what a line of metrics says besides the loss
    result: dict[str, Any] = field(default_factory=dict)  # what the result says besides, of the last look
    predictions: dict[str, Any] | None = None  # example by example, where there are such


class Objective(Protocol):
    dropout: float
    held_out: int  # sequences or examples of the split that is validated on
    warnings: list[str]  # about this model and this data, before the first step

    @property
    def model(self) -> nn.Module: ...

    def role_of(self, name: str) -> str:
        """What a parameter is for, in the words of accounting.PartCount."""
        ...

    def loss_of(self, step: int, members: range) -> Tensor:
        """The part of update `step`'s mean loss that these members of its batch make up."""
        ...

    def tokens_after(self, step: int) -> int:
        """Tokens read by the updates up to `step`."""
        ...

    def validation(self) -> Validation:
        """A look at the part of the held-out data that the curve uses, by all processes."""
        ...

    def final_validation(self, last_loss: float) -> Validation:
        """The look that is reported, over more of it; `last_loss` is the curve's last."""
        ...

    def best_result(self, loss: float) -> dict[str, Any]:
        """What the result says of the best look besides its loss."""
        ...
