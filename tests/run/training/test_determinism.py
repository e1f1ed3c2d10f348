"""Everything a step does has a deterministic form, also on GPUs, which are not at hand: judged by its operations."""

import os
import warnings
from collections.abc import Iterator

import pytest
import torch
import torch._inductor.config

from bare_loop import start
from oelm.core.config import resolved
from oelm.machine.errors import UserError
from oelm.run.training.assembly import assembled
from oelm.run.training.device import WORKSPACE, Machine, prepare_process, resolve_machine
from oelm.run.training.distributed import World
from oelm.run.training.loop import optimization_steps
from oelm.run.training.run import run_with_data
from operations import Operations
from small_runs import quiet_execution, small_model, small_run

STEPS_OF = [
    ("frozen_half", {"positions": "rotary", "tied": False}),
    ("frozen_selection", {}),
    ("frozen_orthogonal_repaired", {"dropout": 0.1}),
    ("trained", {"scores": {"query_key_norm": True, "query_key_width": 4, "temperature": {"kind": "per_head"}}}),
]


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("arm", "model"), STEPS_OF)
@pytest.mark.usefixtures("deterministic")
def test_a_training_step_has_only_operations_with_a_deterministic_form(token_folder, arm, model):
    run = small_run(arm, data=token_folder)
    if model:
        run = resolved(run.model_copy(update={"model": small_model(arm, **model)}))
    gpt, _, steps = start(run, token_folder)
    gpt.token_embedding.sparse = False  # as on a GPU
    with Operations() as operations:
        for _ in range(2):
            next(steps)
    assert "embedding_dense_backward" in operations.seen
    assert operations.without_deterministic_form() == []


def test_a_step_and_a_validation_on_a_probe_have_only_operations_with_a_deterministic_form():
    run, data = run_with_data(small_run(data="probe:recall?pairs=2,3,4&length=16&vocabulary=64"))
    machine, _ = resolve_machine(quiet_execution(), run, local_rank=0, world_size=1)
    objective, optimizer, schedule = assembled(run, data, machine=machine, world=World())
    objective.model.token_embedding.sparse = False
    with Operations() as operations:
        next(optimization_steps(objective, optimizer, run, schedule=schedule, machine=machine, world=World()))
        objective.validation()
    assert "index_select" in operations.seen
    assert operations.without_deterministic_form() == []


# ---- What is asked of torch: CUDA is not at hand, so the calls are seen, and their order ---------------------------


@pytest.fixture
def asked(monkeypatch) -> Iterator[list[object]]:
    """What is global is as before afterwards."""
    calls: list[object] = []
    monkeypatch.delenv(WORKSPACE, raising=False)
    monkeypatch.setattr(torch.cuda, "set_device", lambda name: calls.append((name, os.environ.get(WORKSPACE))))
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *given, **options: calls.append((given, options)))
    flags = torch.backends.cuda.matmul, torch.backends.cudnn
    names = ("allow_tf32", "allow_bf16_reduced_precision_reduction"), ("allow_tf32", "benchmark")
    before = [(flag, name, getattr(flag, name)) for flag, each in zip(flags, names, strict=True) for name in each]
    compiler = torch._inductor.config
    compiler_before = compiler.deterministic, compiler.use_static_cuda_launcher
    for flag, name, value in before:
        setattr(flag, name, name != "benchmark" or not value)  # what must be set is not so already
    yield calls
    for flag, name, value in before:
        setattr(flag, name, value)
    compiler.deterministic, compiler.use_static_cuda_launcher = compiler_before
    monkeypatch.undo()


def test_on_a_gpu_what_has_no_deterministic_form_is_an_error(asked):
    prepare_process(Machine("cuda:0", "float32", True, 1, 4))
    assert asked == [("cuda:0", ":4096:8"), ((True,), {})]  # the workspace first: it is read when CUDA starts
    assert torch._inductor.config.deterministic
    assert not torch._inductor.config.use_static_cuda_launcher  # it would stop the threads beside, where it waits
    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cudnn.benchmark


def test_the_compiler_recommends_nothing_that_is_a_setting(asked):
    prepare_process(Machine("cuda:0", "bfloat16", True, 1, 4))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", append=True)
        warnings.warn("TensorFloat32 tensor cores for float32 matrix multiplication available", stacklevel=1)


def test_deterministic_and_tf32_are_the_users_choice(asked):
    prepare_process(Machine("cuda:1", "float32", True, 1, 4, deterministic=False, tf32=True))
    assert asked == [("cuda:1", None), ((False,), {})]
    assert not torch._inductor.config.deterministic
    assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32


def test_a_workspace_that_gives_other_bits_is_refused_before_anything_is_computed(asked, monkeypatch):
    monkeypatch.setenv(WORKSPACE, ":0:0")
    with pytest.raises(UserError, match=f"{WORKSPACE}: ':0:0' does not give the same bits"):
        prepare_process(Machine("cuda:0", "float32", False, 1, 4))
    assert asked == []
    prepare_process(Machine("cuda:0", "float32", False, 1, 4, deterministic=False))
    assert asked[0] == ("cuda:0", ":0:0")


def test_an_operation_without_a_deterministic_form_would_be_seen():
    with Operations() as operations:
        torch.ones(3).cumsum(0)
        torch.ones(3, dtype=torch.int64).cumsum(0)
    assert operations.without_deterministic_form() == ["cumsum"]
