"""Which folders of a study are runs."""

from oelm.run.directory import TUNING_FOLDER, RunDirectory, run_directories
from oelm.storage.files import write_json


def test_runs_are_those_of_the_study_and_of_its_grid_also_without_their_config(tmp_path):
    for name in ("trained-s1", "trained-s0", f"{TUNING_FOLDER}/trained-s1000"):
        (tmp_path / name).mkdir(parents=True)
        write_json(RunDirectory(tmp_path / name).config_file, {})
    (tmp_path / "lost").mkdir()
    write_json(RunDirectory(tmp_path / "lost").status_file, {"state": "running"})
    (tmp_path / "figures").mkdir()
    (tmp_path / "bench.json").touch()
    found = [path.relative_to(tmp_path).as_posix() for path in run_directories(tmp_path)]
    assert found == ["lost", "trained-s0", "trained-s1", f"{TUNING_FOLDER}/trained-s1000"]


def test_a_folder_that_is_not_there_has_none(tmp_path):
    assert run_directories(tmp_path / "nothing") == []
