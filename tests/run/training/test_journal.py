"""What a person sees of a run: not every validation of a short one, but all of them in training.log."""

import json

from oelm.run.training import journal
from oelm.run.training.journal import Journal
from oelm.run.training.run import train
from small_runs import quiet_execution, small_run


def test_a_short_run_shows_its_end_and_logs_every_validation(token_folder, tmp_path, capfd):
    run = small_run("trained", data=token_folder, validate_every=2)
    outcome = train(run, quiet_execution(), out=tmp_path / "run")
    steps = run.training.steps
    log, shown = outcome.directory.log_file.read_text(), capfd.readouterr().out
    assert log.count("  validation loss ") == steps // 2
    assert "  validation loss " not in shown
    assert "finished: validation loss" in shown
    records = [json.loads(line) for line in outcome.directory.metrics_file.read_text().splitlines()]
    assert sum("val_loss" in record for record in records) == steps // 2


def test_a_long_run_shows_validations_now_and_then(tmp_path, capfd, monkeypatch):
    clock = iter(range(0, 10_000, 10))  # each look at it is ten seconds later
    monkeypatch.setattr(journal.time, "monotonic", lambda: next(clock))
    saying = Journal(tmp_path / "training.log")
    for step in range(12):
        saying.validation(f"validation {step}")
    shown = capfd.readouterr().out.splitlines()
    assert 2 <= len(shown) <= 5
    assert len((tmp_path / "training.log").read_text().splitlines()) == 12
