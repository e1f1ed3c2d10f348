"""Everything a step does has a deterministic form, also on GPUs, which are not at hand: judged by its operations."""

from collections.abc import Iterator

import pytest
import torch

import oelm.training.device as device
from bare_loop import start
from oelm.training.device import Machine, prepare_process
from operations import Operations
from small_runs import small_run


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("arm", ["trained", "frozen_head_orthogonal", "frozen_half"])
@pytest.mark.usefixtures("deterministic")
def test_a_training_step_has_only_operations_with_a_deterministic_form(token_folder, arm):
    gpt, _, steps = start(small_run(arm, data=token_folder), token_folder)
    gpt.token_embedding.sparse = False  # as on a GPU
    with Operations() as operations:
        for _ in range(3):
            next(steps)
    assert "embedding_dense_backward" in operations.seen
    assert operations.without_deterministic_form() == []


def test_on_a_gpu_what_has_no_deterministic_form_is_an_error(monkeypatch):
    """CUDA is not at hand: what is asked of torch is seen, and in which order."""
    calls: list[object] = []
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    workspace = "CUBLAS_WORKSPACE_CONFIG"
    monkeypatch.setattr(torch.cuda, "set_device", lambda name: calls.append((name, device.os.environ.get(workspace))))
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *given, **options: calls.append((given, options)))
    prepare_process(Machine("cuda:0", "float32", False, 1, 4))
    assert calls == [("cuda:0", ":4096:8"), ((True,), {})]


def test_an_operation_without_a_deterministic_form_would_be_seen():
    with Operations() as operations:
        torch.ones(3).cumsum(0)
        torch.ones(3, dtype=torch.int64).cumsum(0)
    assert operations.without_deterministic_form() == ["cumsum"]
