"""`oelm remote HOST check --gpu` runs `oelm check` there, on the GPUs of the entry, for a study of both sides."""

import pytest

from oelm.execution.remote import verbs
from oelm.execution.remote.connection import EndedCommand
from oelm.execution.remote.hosts import Server


@pytest.mark.parametrize(
    ("gpus", "study", "expected"),
    [
        (None, None, ["check"]),
        ([0, 2], None, ["check", "--gpus", "0,2"]),
        (None, "qk_freeze", ["check", "--study", "qk_freeze", "--runs", "runs/qk_freeze"]),
    ],
)
def test_the_check_over_there_is_given_the_gpus_and_the_study(monkeypatch, gpus, study, expected):
    called = []

    def relay(server, module, *arguments):
        called.append((module, list(arguments)))
        return EndedCommand(1, [])

    monkeypatch.setattr(verbs, "relay", relay)
    server = Server("lab", "lab", "oelm", None, gpus, None)
    assert verbs.check_gpu(server, study).code == 1  # its own code: a check has failed
    assert called == [("oelm.__main__", expected)]
