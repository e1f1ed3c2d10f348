"""What only the insides of a tree can make, made once, by the old tree's code and its tests' builders.

old_side.py STUDY FOLDER TESTS       FOLDER becomes study.yaml and runs/, of an invented study
old_side.py encoders FOLDER TESTS    a tiny encoder of each type, and sentences to prepare for them
"""

import sys
from pathlib import Path

import yaml

name, folder, tests = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
sys.path[:0] = [str(tests), str(tests / "reporting")]
folder.mkdir(parents=True)


def make_encoders():
    from sentence_sources import nli_folder
    from small_encoders import TYPES, loadable_encoder

    nli_folder(folder / "sentences")
    for number, kind in enumerate(TYPES):
        loadable_encoder(folder / kind, kind, seed=number)


def make_study():
    import example_studies

    import stored_runs

    trees = []

    def remembering(module):
        study_of = module.study_of

        def remembered(tree, name):
            trees.append(tree)
            return study_of(tree, name=name)

        module.study_of = remembered

    remembering(example_studies)
    remembering(stored_runs)
    runs = folder / "runs"
    match name:
        case "complete":
            study = example_studies.example_study()
            example_studies.findings_from(study, runs, bench=True, heads_of=study.arms)
        case "partial":
            example_studies.findings_from(example_studies.example_study(), runs, example_studies.partial_loss)
        case "nasty":
            example_studies.findings_from(example_studies.nasty_study(), runs)
        case "classification":
            study = stored_runs.small_classification(
                hypotheses=[stored_runs.accuracy_claim(kind) for kind in ("not_worse", "equivalent", "better")]
            )
            place = {arm: 0.1 + 0.03 * number for number, arm in enumerate(stored_runs.PRETRAINED_ARMS)}
            stored_runs.store_study(study, runs, lambda arm, seed, stage, point: place[arm] + 0.0025 * seed)
        case "solving":
            study = stored_runs.small_probes(
                hypotheses=[stored_runs.solving_claim("solves_more"), stored_runs.solving_claim("solves_sooner")]
            )
            curve = stored_runs.probe_curve(
                lambda arm, seed, stage, point: None if (arm, seed) == ("trained", 3) else 40 + 20 * seed
            )
            stored_runs.store_study(study, runs, lambda arm, seed, stage, point: 0.4 + 0.01 * seed, measured=curve)
        case "looking":
            losses = example_studies.plausible_loss
            study = example_studies.example_study(seeds=list(range(8)), looks=[4, 6, 8])
            stored_runs.store_study(study, runs, losses)
        case _:
            raise SystemExit(f"{name}: not an invented study")
    tree = {key: value for key, value in trees[-1].items() if value is not None}
    (folder / "study.yaml").write_text(yaml.safe_dump(tree, allow_unicode=True, sort_keys=False), encoding="utf-8")


make_encoders() if name == "encoders" else make_study()
