"""What `auto` becomes on this machine, and settings that no machine has."""

from types import SimpleNamespace

import pytest
import torch

import oelm.run.training.device as device
from oelm.core.config import Execution
from oelm.machine.errors import UserError
from oelm.run.training.device import resolve_machine
from oelm.run.training.records import Progress
from small_runs import small_run


def resolve(**execution: object):
    return resolve_machine(Execution(**execution), small_run(), local_rank=0, world_size=1)


def test_every_automatic_choice_has_a_reason():
    machine, reasons = resolve(device="cpu")
    assert machine.precision in ("float32", "bfloat16")
    assert not machine.compile
    assert [reason.split()[0] for reason in reasons] == ["precision", "compile"]
    assert "too short" in reasons[1] or "compiler" in reasons[1]


def test_what_no_machine_has_is_refused():
    with pytest.raises(UserError, match="is not a device"):
        resolve(device="toaster")
    with pytest.raises(UserError, match="more than this machine can use"):
        resolve(device="cpu", threads=100_000)


def test_compiling_without_a_compiler_is_refused_and_never_automatic(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    machine, reasons = resolve(device="cpu")
    assert not machine.compile
    assert "no C++ compiler" in reasons[1]
    with pytest.raises(UserError, match="no C\\+\\+ compiler"):
        resolve(device="cpu", compile="on")


@pytest.mark.parametrize(
    ("triton", "compilers", "header", "expected"),
    [
        (True, ["clang"], "Python.h", None),
        (False, ["gcc"], "Python.h", "no Triton"),
        (True, [], "Python.h", "no C compiler for Triton"),
        (True, ["gcc"], "other.h", "no Python.h"),
    ],
)
def test_on_a_gpu_compiling_needs_what_triton_needs(monkeypatch, tmp_path, triton, compilers, header, expected):
    """Without it, a run that would have been compiled is not, and one line says why."""
    (tmp_path / header).touch()
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if triton else None)
    monkeypatch.setattr("shutil.which", lambda name: name if name in compilers else None)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"include": str(tmp_path)})
    monkeypatch.setattr(device, "COMPILE_WORTHWHILE_SECONDS", 0)
    compiled, reason = device._compile(Execution(), small_run(), "cuda", 1)
    assert compiled == (expected is None)
    assert reason.startswith("compile on: the run is long enough" if compiled else f"compile off: {expected}")
    if expected:
        with pytest.raises(UserError, match=f"execution.compile: on, but there is {expected}"):
            device._compile(Execution(compile="on"), small_run(), "cuda", 1)


def test_a_gpu_that_torch_cannot_use_is_not_passed_over_in_silence(monkeypatch):
    """A driver that is too old for this torch, or a torch for processors: a run that was given a GPU would compute on
    the processor, and nobody would know."""
    monkeypatch.setattr(device, "gpu_driver", lambda: "535.54.03")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "sees no GPU through driver 535.54.03" in resolve(device="auto")[1][-1]
    for hidden in ("", "-1", "NoDevFiles"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert not any("driver" in reason for reason in resolve(device="auto")[1])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    with pytest.raises(
        UserError, match=r"execution.device: auto, and CUDA_VISIBLE_DEVICES is 2, but torch .* driver 535"
    ):
        resolve(device="auto")
    assert resolve(device="cpu")[0].device == "cpu"
    monkeypatch.setattr(device, "gpu_driver", lambda: None)
    assert resolve(device="auto")[0].device == "cpu"


def test_the_mean_of_steps_leaves_those_out_that_compiled():
    assert Progress(step=10, training_seconds=29.0, compiling_steps=1, compiling_seconds=20.0).mean_step_seconds == 1.0
    assert Progress(step=10, training_seconds=10.0).mean_step_seconds == 1.0
    assert Progress(step=1, training_seconds=20.0, compiling_steps=1, compiling_seconds=20.0).mean_step_seconds == 20.0


def test_bfloat16_is_asked_of_the_chosen_gpu(monkeypatch):
    """The first GPU is older than the second."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda name: SimpleNamespace(major=7 + int(name[-1])))
    found = [device._precision(Execution(), name)[0] for name in ("cuda:0", "cuda:1")]
    assert found == ["float32", "bfloat16"]
