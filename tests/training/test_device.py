"""What `auto` becomes on this machine, and settings that no machine has."""

import pytest

from oelm.config import Execution
from oelm.errors import UserError
from oelm.training.device import resolve_machine
from small_runs import small_run


def resolve(**execution: object):
    return resolve_machine(Execution(**execution), small_run(), local_rank=0, world_size=1)


def test_every_automatic_choice_has_a_reason():
    machine, reasons = resolve(device="cpu")
    assert machine.precision in ("float32", "bfloat16")
    assert not machine.compile
    assert [reason.split()[0] for reason in reasons] == ["precision", "compile"]
    assert "too short" in reasons[1] or "compiler" in reasons[1]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"device": "toaster"}, "is not a device"),
        ({"device": "cpu", "threads": 100_000}, "more than this machine can use"),
    ],
)
def test_what_no_machine_has_is_refused(settings, expected):
    with pytest.raises(UserError, match=expected):
        resolve(**settings)


def test_compiling_without_a_compiler_is_refused_and_never_automatic(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    machine, reasons = resolve(device="cpu")
    assert not machine.compile
    assert "no C++ compiler" in reasons[1]
    with pytest.raises(UserError, match="no C\\+\\+ compiler"):
        resolve(device="cpu", compile="on")
