"""Studies with invented losses, for reports: complete, partial, with markup in every text a user can write."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from oelm.analysis.findings import Findings
from oelm.analysis.summary import findings_of
from oelm.models.heads.kinds import NAMES
from oelm.run.directory import RunDirectory
from oelm.study.declaration import Study
from oelm.study.reading import study_of
from stored_runs import VOCABULARY, Losses, sealed_again, store_bench, store_study

SIZES = {"vocabulary": VOCABULARY, "seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 2}
ABOVE_TRAINED = {"trained": 0.0, "frozen_head_orthogonal": 0.03, "frozen_scaled_normal": 0.09}
LABELS = {
    "trained": {"en": "trained", "zh": "可训练"},
    "frozen_head_orthogonal": {"en": "frozen, orthogonal per head", "zh": "冻结，分头正交"},
    "frozen_scaled_normal": {"en": "frozen, normal", "zh": "冻结，随机"},
}
NASTY = "<script>alert(1)</script> *x* _y_ #panic() $a$ `b` | [c](d) ] \\ \n # e & {f} ~~g~~ 100 %"


def example_study(**changes: Any) -> Study:
    tree: dict[str, Any] = {
        "name": "example",
        "question": {"en": "Can queries and keys stay frozen?", "zh": "Q/K 可以保持冻结吗？"},
        "base": {"preset": "tiny", "data": "data/invented", "model": SIZES, "training": {"steps": 60, "batch_size": 4}},
        "arms": {arm: {"label": label} for arm, label in LABELS.items()},
        "seeds": [0, 1, 2, 3],
        "tuning": {"grid": {"learning_rate": [1e-3, 2e-3, 4e-3]}, "set": {"steps": 20}, "seeds": [1000]},
        "hypotheses": [
            hypothesis("cost", "not_worse", "frozen_head_orthogonal", "trained", margin_percent=5.0),
            hypothesis("start", "better", "frozen_head_orthogonal", "frozen_scaled_normal", varies=["start"]),
            hypothesis(
                "equal", "equivalent", "frozen_scaled_normal", "trained", margin_percent=5.0, confirmatory=False
            ),
            hypothesis("count", "fewer_parameters", "frozen_head_orthogonal", "trained", least_frozen=100),
            hypothesis("time", "faster", "frozen_head_orthogonal", "trained"),
        ],
    }
    return study_of(tree | changes, name="example.yaml")


def hypothesis(name: str, kind: str, treatment: str, control: str, **more: Any) -> dict[str, Any]:
    claim = {"en": f"The claim {name} holds", "zh": f"假设 {name} 成立"}
    given = {"name": name, "claim": claim, "kind": kind, "treatment": treatment, "control": control}
    return given | {"varies": ["start", "scale", "moves"]} | more


def plausible_loss(arm: str, seed: int, stage: str, point: Any) -> float:
    """Seeds move all arms together; tuning prefers 2e-3."""
    rate = dict(point).get("training.learning_rate", 2e-3)
    away = 0.03 * math.log(rate / 2e-3) ** 2 if stage == "tuning" else 0.0
    own = random.Random(f"{arm} {seed} {stage}").gauss(0, 0.004)
    return 2.0 + ABOVE_TRAINED[arm] + random.Random(seed).gauss(0, 0.01) + own + away


def partial_loss(arm: str, seed: int, stage: str, point: Any) -> float | None:
    """The normal arm: one run diverged, one failed, one was never started."""
    if stage == "final" and arm == "frozen_scaled_normal" and seed > 0:
        return {1: math.inf, 2: math.nan, 3: None}[seed]
    return plausible_loss(arm, seed, stage, point)


HEADS = (3, 4)  # layers, heads


def invented_heads(arm: str, seed: int, share: float) -> dict[str, list[list[float]]]:
    """An induction head in the last layer that forms with the share of training done, late where keys are frozen."""
    draw, (layers, heads) = random.Random(f"{arm} {seed}"), HEADS
    tables = {
        name: [[round(draw.uniform(0.01, 0.06), 3) for _ in range(heads)] for _ in range(layers)] for name in NAMES
    }
    when = 0.35 if arm == "trained" else 0.6
    formed = 1 / (1 + math.exp(-20 * (share - when - 0.02 * seed)))
    tables["previous"][0][1] = round(0.05 + 0.9 * formed, 3)
    tables["induction"][2][seed % heads] = round(0.02 + 0.8 * formed, 3)
    return tables


def _record_heads(folder: Path, arm: str) -> None:
    for path in folder.glob(f"{arm}-s*"):
        seed = int(path.name.removeprefix(f"{arm}-s").split("-")[0])
        directory = RunDirectory(path)
        records = [json.loads(line) for line in directory.metrics_file.read_text(encoding="utf-8").splitlines()]
        for record in records:
            if "val_loss" in record:
                record["head_scores"] = invented_heads(arm, seed, record["step"] / records[-1]["step"])
        directory.metrics_file.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
        sealed_again(path)


def findings_from(
    study: Study,
    folder: Path,
    losses: Losses = plausible_loss,
    *,
    bench: bool = False,
    heads_of: Iterable[str] = (),
) -> Findings:
    """`heads_of` are arms whose runs recorded what their heads look at."""
    folder.mkdir(parents=True, exist_ok=True)
    shelf = store_study(study, folder, losses)
    for arm in heads_of:
        _record_heads(folder, arm)
    if bench:
        jitter = random.Random(7)
        times = {"trained": 0.05, "frozen_head_orthogonal": 0.048, "frozen_scaled_normal": 0.0481}
        seconds = {arm: [time * jitter.gauss(1, 0.005) for _ in range(8)] for arm, time in times.items()}
        store_bench(folder, study=study, baseline="trained", seconds=seconds)
    return findings_of(study, shelf)


def nasty_study() -> Study:
    """Every text a study file may hold, full of what would be markup somewhere."""
    arms = {arm: {"label": f"{NASTY} {arm}"} for arm in ABOVE_TRAINED}
    claims = [
        hypothesis("H <b>1</b> $x$ #h |", "not_worse", "frozen_head_orthogonal", "trained", margin_percent=5.0)
        | {"claim": NASTY, "fails_when": NASTY},
        hypothesis("H2", "better", "frozen_head_orthogonal", "frozen_scaled_normal", varies=[])
        | {"claim": NASTY, "explained": {"start.family": NASTY}},
    ]
    return example_study(
        name="a study",
        question=NASTY,
        arms=arms,
        hypotheses=claims,
        tuning=None,
        seeds=[0, 1, 2],
        scope=NASTY,
        notes=NASTY,
        cite=NASTY,
    )
