"""A file of the working folder that is called like a module of Python: no process of ours imports it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from small_runs import child_environment, free_port

SHADOWED = ("queue", "random", "select", "calendar", "yaml")
STUDY = {
    "question": "Does it hold?",
    "base": {
        "model": {"seq_len": 16, "d_model": 16, "num_layers": 1, "num_heads": 2},
        "training": {"steps": 2, "batch_size": 2, "validate_every": 2},
        "execution": {"device": "cpu", "compile": "off", "threads": 1},
        "data": "probe:recall?pairs=2&length=16&vocabulary=16",
    },
    "arms": {"trained": {}, "frozen_query": {"processes": 2}},
    "seeds": [0],
}
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port")
TRAIN = ("train", "one.yaml", "--out", "one")


@pytest.mark.parametrize(
    "arguments",
    [
        ("-P", "-m", "oelm", "run", "mine.yaml"),  # as the installed command; its probes and runs, warm and by torchrun
        ("-m", "oelm", "check", "--only", "device"),
        ("-P", *TORCHRUN, "PORT", "-m", "oelm", *TRAIN),
    ],
    ids=lambda words: "-".join(word for word in words if word.isalpha()),
)
def test_files_of_the_working_folder_are_not_imported(arguments, tmp_path):
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text(f"open('imported-{name}', 'w')\nraise SystemExit('imported: {name}')\n")
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(STUDY))
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(STUDY["base"]))
    words = [str(free_port()) if word == "PORT" else word for word in arguments]
    environment = child_environment()
    environment.pop("PYTHONSAFEPATH", None)
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert not list(tmp_path.glob("imported-*")), done.stderr
    assert done.returncode == 0, done.stderr
