"""What changed between two starts of one run."""

from oelm.sources import SCHEME, source_digest
from oelm.training.device import resolve_machine
from oelm.training.provenance import changed_settings, environment
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
