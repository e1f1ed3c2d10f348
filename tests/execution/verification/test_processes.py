"""Several processes in one: every share once, and sums in the order of the real ones."""

import torch

from oelm.execution.verification.recomputing import Processes
from oelm.run.training.objective import Validation

NUMBERS = [0.1, 0.7, 1e16, -1e16, 0.3]


def seen(processes: Processes) -> tuple[Validation, list[range]]:
    shares = []

    def look() -> Validation:
        shares.append(processes.share(13))
        first = processes.sum(torch.tensor(NUMBERS[processes.rank], dtype=torch.float64))
        second = processes.sum(torch.tensor([processes.rank, 1]))
        return Validation(loss=first.item(), text=str(second.tolist()), record={})

    return processes.look(look), shares


def test_every_share_is_taken_once_and_sums_go_from_the_last_process_to_the_first():
    found, shares = seen(Processes(5))
    assert [member for share in shares for member in share] == list(range(13))
    assert found.text == str([10, 5])
    assert found.loss == (((NUMBERS[4] + NUMBERS[3]) + NUMBERS[2]) + NUMBERS[1]) + NUMBERS[0]
    assert found.loss != sum(NUMBERS)


def test_a_second_look_begins_anew():
    processes = Processes(3)
    assert seen(processes)[0] == seen(processes)[0]
