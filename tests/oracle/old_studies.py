"""Runs of invented studies, with the old tree's code and its tests' builders: old_studies.py STUDY FOLDER TESTS.

FOLDER becomes study.yaml and runs/. This runs on the old side alone.
"""

import os
import sys
from pathlib import Path

import yaml

name, folder, tests = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
sys.path[:0] = [str(tests), str(tests / "reporting")]

import example_studies  # noqa: E402

written = {}
study_of = example_studies.study_of


def remembered(tree, name):
    written["tree"] = tree
    return study_of(tree, name=name)


example_studies.study_of = remembered
study = example_studies.nasty_study() if name == "nasty" else example_studies.example_study()
folder.mkdir(parents=True)
match name:
    case "complete":
        example_studies.findings_from(study, folder / "runs", bench=True, heads_of=study.arms)
    case "partial":
        example_studies.findings_from(study, folder / "runs", example_studies.partial_loss)
    case "nasty":
        example_studies.findings_from(study, folder / "runs")
tree = {key: value for key, value in written["tree"].items() if value is not None}
text = yaml.safe_dump(tree, allow_unicode=True, sort_keys=False)
(folder / "study.yaml").write_text(text, encoding="utf-8")
os.sync()
