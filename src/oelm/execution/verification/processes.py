"""All processes of a run in one, one after another: the same shares of the data, added up in the same order.

gloo adds single numbers from the last process down to the first (seen for 2 to 5 processes); NCCL's order is not known,
and a GPU is another kind of machine in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import add

from torch import Tensor

from oelm.run.training.distributed import World
from oelm.run.training.objective import Validation


class Processes:
    """Sharing as a World does: `rank` is the process whose share is being computed."""

    def __init__(self, size: int) -> None:
        self.size, self.rank = size, 0
        self._heard: list[list[Tensor]] = []

    def look(self, look: Callable[[], Validation]) -> Validation:
        """What the last process sees: by then all the others' numbers are there."""
        self._heard = [[] for _ in range(self.size)]
        *others, last = range(self.size)
        for rank in others:
            self.rank = rank
            look()
        self.rank = last
        return look()

    def share(self, count: int) -> range:
        return World(rank=self.rank, size=self.size).share(count)

    def sum(self, numbers: Tensor) -> Tensor:
        """Of the processes up to this one."""
        mine = self._heard[self.rank]
        mine.append(numbers)
        return reduce(add, [heard[len(mine) - 1] for heard in reversed(self._heard[: self.rank + 1])])
