"""What changed between two starts of one run."""

from types import SimpleNamespace

import pytest
import torch

from oelm.core.sources import SCHEME, source_digest
from oelm.machine.system import gpu_driver
from oelm.run.training.device import Machine, resolve_machine
from oelm.run.training.provenance import changed_settings, environment
from oelm.storage.schemas import Environment
from small_runs import quiet_execution, small_run


def test_a_run_records_the_digest_with_its_scheme():
    machine, _ = resolve_machine(quiet_execution(), small_run(), local_rank=0, world_size=1)
    found = environment(machine, world_size=1, data_digest="d")
    assert (found["source_digest"], found["source_scheme"]) == (source_digest(), SCHEME)


def test_other_sources_are_told_and_those_of_another_scheme_as_unknown():
    before = {"source_digest": "a", "source_scheme": 2, "threads": 1}
    assert changed_settings(before, before) == []
    assert changed_settings(before, before | {"source_digest": "b"}) == ["source_digest: a before, b now"]
    (line,) = changed_settings({"source_digest": "a", "threads": 1}, before | {"source_digest": "b"})
    assert line == "source_digest: cannot be compared (taken by scheme 1 before, 2 now)"


def test_a_setting_that_was_not_recorded_yet_was_the_default():
    now = {"threads": 1, "deterministic": True, "tf32": False}
    assert changed_settings({"threads": 1}, now) == []
    assert changed_settings({"threads": 1}, now | {"deterministic": False}) == ["deterministic: True before, False now"]
    assert changed_settings(now, now | {"tf32": True}) == ["tf32: False before, True now"]


def test_determinism_and_tf32_are_recorded_and_said():
    machine, reasons = resolve_machine(
        quiet_execution(deterministic=False, tf32=True), small_run(), local_rank=0, world_size=1
    )
    found = environment(machine, world_size=1, data_digest="d")
    assert (found["deterministic"], found["tf32"]) == (False, True)
    assert "with TF32" in str(machine)
    assert str(machine).endswith("not deterministic")
    assert reasons[-1].startswith("deterministic off: as requested; a resumed run may differ")


@pytest.fixture
def an_a5000(monkeypatch):
    """torch's answers about a card that is not here."""
    properties = SimpleNamespace(name="NVIDIA RTX A5000", total_memory=24 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 3))
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr("oelm.run.training.provenance.gpu_driver", lambda: "570.86.10")
    return properties


def on_cuda() -> dict:
    machine = Machine(device="cuda:0", precision="bfloat16", compile=True, threads=1, micro_batch_size=8)
    return environment(machine, world_size=1, data_digest="d")


def test_a_run_on_a_gpu_records_the_card_and_what_drives_it(an_a5000):
    found = on_cuda()
    expected = {
        "gpu": "NVIDIA RTX A5000", "gpu_memory_bytes": 24 * 2**30, "gpu_driver": "570.86.10", "cuda": "12.8",
        "nccl": "2.27.3",
    }  # fmt: skip
    assert {key: found[key] for key in expected} == expected
    Environment.model_validate(found)


def test_resuming_on_another_model_of_gpu_is_told(an_a5000):
    before = on_cuda()
    assert changed_settings(before, on_cuda()) == []
    an_a5000.name = "NVIDIA H100 80GB HBM3"
    assert changed_settings(before, on_cuda()) == ["gpu: NVIDIA RTX A5000 before, NVIDIA H100 80GB HBM3 now"]
    older = {key: value for key, value in before.items() if key != "gpu"}  # of a version that did not record it
    assert changed_settings(older, on_cuda()) == []


def test_the_drivers_version_is_the_kernels(tmp_path, monkeypatch):
    monkeypatch.setattr("oelm.machine.system.PROC", tmp_path)
    assert gpu_driver() is None
    file = tmp_path / "driver" / "nvidia" / "version"
    file.parent.mkdir(parents=True)
    for text, version in (
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\nGCC version:  gcc 12", "535.104.05"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build", "570.86.10"),
        ("nothing of the kind", None),
    ):
        file.write_text(text)
        assert gpu_driver() == version
