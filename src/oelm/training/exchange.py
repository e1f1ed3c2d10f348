"""Gradients added up over all processes while the backward pass still computes others.

Every weight has a hook that says when its gradient is complete. Buckets of gradients are sent in one order on all
processes: that in which they become complete, seen and agreed on at the first update with these weights moving, and
used at that update too, so that a resumed run adds in the same order. A token embedding sends the rows that the update
reads instead of all its rows; the part that a tied output layer gives its weight is complete as soon as the loss is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from oelm.footprint import BUCKET_ELEMENTS
from oelm.training.device import Machine
from oelm.training.distributed import World, collective_device
from oelm.training.objective import Objective


class GradientExchange:
    """Of one run: `begin` before an update, `open` before its last backward pass, `finish` after it.

    Alone, a process exchanges nothing and has no hooks.
    """

    def __init__(self, world: World, parameters: list[Tensor], objective: Objective, machine: Machine) -> None:
        self._world, self._parameters, self._objective, self._machine = world, parameters, objective, machine
        self._plans: dict[tuple[bool, ...], list[list[int]]] = {}
        self._hooked: set[int] = set()  # weights; between updates a hook does nothing
        self._rows: _Rows | None = None
        self._cuts_embedding = False
        self._is_open = False

    def begin(self, step: int) -> None:
        """Which weights move is known: one that thaws is exchanged from now on."""
        if self._world.size == 1:
            return
        self._moving = tuple(parameter.requires_grad for parameter in self._parameters)
        for place, moves in enumerate(self._moving):
            if moves and place not in self._hooked:
                self._parameters[place].register_post_accumulate_grad_hook(self._noting(place))
                self._hooked.add(place)
        self._plan = self._plans.get(self._moving)
        self._complete: dict[int, None] = {}  # in order
        self._sent: list[_Sent] = []
        self._begin_rows(step)

    def open(self) -> None:
        """The backward pass that follows completes every gradient."""
        self._is_open = self._world.size > 1

    def finish(self) -> None:
        """What is left is sent; afterwards every process has the sums."""
        if self._world.size == 1:
            return
        self._is_open = False
        with self._world.together():
            if self._plan is None:
                self._plan = self._plans[self._moving] = self._agreed()
            while len(self._sent) < len(self._plan):
                self._send(self._plan[len(self._sent)])
            if self._rows is not None:
                self._rows.send()
            for sent in self._sent:
                sent.arrive()
            if self._rows is not None:
                self._rows.arrive()
                self._rows = None
        self._sent = []
        self._world.launched()

    # -- while the backward pass computes ----------------------------------------------------------------------------

    def _noting(self, place: int) -> Any:
        def note(parameter: Tensor) -> None:
            if self._is_open:
                self._complete[place] = None
                if self._plan is not None:
                    self._send_complete(self._plan)

        return note

    def _send_complete(self, plan: list[list[int]]) -> None:
        """In the order of the plan: a bucket waits for those before it, as on every other process."""
        while len(self._sent) < len(plan) and all(place in self._complete for place in plan[len(self._sent)]):
            with self._world.explained():
                self._send(plan[len(self._sent)])

    def _send(self, bucket: list[int]) -> None:
        self._sent.append(_Sent.of([self._gradient(place) for place in bucket]))

    def _gradient(self, place: int) -> Tensor:
        """Of a process whose part of the batch is empty: zeros."""
        parameter = self._parameters[place]
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        return parameter.grad

    def _agreed(self) -> list[list[int]]:
        """The buckets of all processes: what any of them has a gradient of, in the order of the slowest."""
        order = torch.full((len(self._parameters),), -1, dtype=torch.int64)
        order[list(self._complete)] = torch.arange(len(self._complete))
        order = order.to(collective_device())
        dist.all_reduce(order, op=dist.ReduceOp.MAX)
        places = order.tolist()
        known = [place for place in range(len(places)) if places[place] >= 0]
        return _buckets(self._parameters, sorted(known, key=lambda place: (places[place], place)))

    # -- the rows of the embedding -----------------------------------------------------------------------------------

    def _begin_rows(self, step: int) -> None:
        found = self._objective.embedding_rows(step)
        if found is None or not found[0].weight.requires_grad:
            return
        embedding, rows = found
        self._rows = _Rows(embedding.weight, self._machine.moved(rows))
        if not self._cuts_embedding:
            embedding.register_forward_hook(self._cut_off)
            self._cuts_embedding = True

    def _cut_off(self, module: nn.Module, given: tuple[Tensor, ...], embedded: Tensor) -> Tensor:
        """The backward pass ends at what was embedded: the rows' gradient is added up here, by token."""
        if self._rows is None or not embedded.requires_grad:
            return embedded
        rows, tokens = self._rows, given[0]
        leaf = embedded.detach().requires_grad_()

        def add(whole: Tensor) -> None:
            assert whole.grad is not None
            rows.add(tokens, whole.grad)
            whole.grad = None

        leaf.register_post_accumulate_grad_hook(add)
        return leaf


@dataclass(frozen=True)
class _Sent:
    """A bucket under way."""

    gradients: list[Tensor]
    flat: Tensor
    work: Any

    @classmethod
    def of(cls, gradients: list[Tensor]) -> _Sent:
        alone = len(gradients) == 1
        flat = gradients[0].view(-1) if alone else torch.cat([gradient.view(-1) for gradient in gradients])
        return cls(gradients, flat, dist.all_reduce(flat, async_op=True))

    def arrive(self) -> None:
        self.work.wait()
        if len(self.gradients) > 1:
            parts = self.flat.split([gradient.numel() for gradient in self.gradients])
            torch._foreach_copy_([gradient.view(-1) for gradient in self.gradients], list(parts))


class _Rows:
    """The gradient of an embedding at the rows that one update reads, which are the same list on every process."""

    def __init__(self, weight: Tensor, rows: Tensor) -> None:
        self._weight, self._rows = weight, rows
        self._sums = torch.zeros(len(rows), weight.shape[1], dtype=weight.dtype, device=weight.device)

    def add(self, tokens: Tensor, gradient: Tensor) -> None:
        places = torch.searchsorted(self._rows, tokens.flatten())
        flat = gradient.reshape(-1, gradient.shape[-1])
        self._sums += torch.ops.aten.embedding_dense_backward(flat, places, len(self._rows), -1, False)

    def send(self) -> None:
        self._work = dist.all_reduce(self._sums, async_op=True)

    def arrive(self) -> None:
        """After what the output layer gave the same weight, if it is tied to it."""
        self._work.wait()
        if self._weight.grad is None:
            self._weight.grad = torch.zeros_like(self._weight)
        self._weight.grad.index_add_(0, self._rows, self._sums)


def _buckets(parameters: list[Tensor], places: Iterable[int]) -> list[list[int]]:
    """Neighbours of one type together, up to a size; what is larger is alone."""
    buckets: list[list[int]] = []
    room = 0
    for place in places:
        size, dtype = parameters[place].numel(), parameters[place].dtype
        if not buckets or size > room or dtype != parameters[buckets[-1][0]].dtype:
            buckets.append([])
            room = BUCKET_ELEMENTS
        buckets[-1].append(place)
        room -= size
    return buckets
