"""What a study may ask of a cluster, and what it may not."""

from __future__ import annotations

import pytest

from oelm.machine.errors import UserError
from oelm.study.slurm_request import SlurmRequest, changed


@pytest.mark.parametrize(
    ("time", "save_seconds", "fits"),
    [
        (2, 120, False),
        (3, 120, True),
        ("1:30", 20, True),
        ("0:01:00", 20, False),
        ("1-0", 120, True),
        ("0-0:02", 120, False),
    ],
)
def test_a_time_limit_has_to_leave_room_to_train(time, save_seconds, fits):
    words = [f"time={time}", f"save_seconds={save_seconds}"]
    if fits:
        changed(SlurmRequest(), [words[1], words[0]])
        return
    with pytest.raises(UserError, match="leaves no room to train"):
        changed(SlurmRequest(), words)


def test_an_unknown_key_of_a_request_names_the_known_ones():
    with pytest.raises(UserError, match=r"--slurm frob: unknown key; known keys: partition, account, time"):
        changed(SlurmRequest(), ["frob=1"])


@pytest.mark.parametrize(
    "option", ["--wrap=id", "--arr=0-9", "--output=x", "--export=NONE", "-w x", "--time=1", "--clu=x"]
)
def test_options_that_carry_the_submission_are_ours(option):
    with pytest.raises(UserError):
        changed(SlurmRequest(), [f"options={option}"])
