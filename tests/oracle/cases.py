"""What both sides do: commands with tiny models, on data of their own. A case is played, then its folders are compared.

Cases speak with either side through what stays: commands, settings, stored files, and the names that the package
documents. The one thing that needs the insides of a tree, writing invented runs, is done by the old side alone
(old_side.py).
"""

from __future__ import annotations

import array
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compare import Difference, differences
from side import KILLED, Side

HERE = Path(__file__).resolve().parent
DATA = {"text": "../data/text", "long": "../data/long"}
SIZES = {"vocabulary": 64, "seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 64}
TRAINING = {
    "training.steps": 12, "batch_size": 4, "learning_rate": 1e-2, "warmup_steps": 2, "validate_every": 4,
    "validation_sequences": 8, "final_validation_sequences": 12,
}  # fmt: skip
QUIET = {"threads": 1, "compile": "off", "log_every": 1, "checkpoint_every": 6, "keep_checkpoints": 9}

# Each alone on every arm; each score option with each repair on some.
SCORES: dict[str, dict[str, Any]] = {
    "temperature": {"scores.temperature.kind": "per_head"},
    "query_key_norm": {"scores.query_key_norm": "true"},
    "query_key_width": {"scores.query_key_width": 16},
    "rotary": {"positions": "rotary"},
    "no_positions": {"positions": "none"},
    "untied": {"tied": "false"},
}
REPAIRS: dict[str, dict[str, Any]] = {
    "residual": {"repairs.residual.rank": 2},
    "nonlinear": {
        "repairs.residual.rank": 2, "repairs.residual.nonlinear": "true", "repairs.residual.on": "[value, up]",
    },
    "head_shift": {"repairs.shift.per": "head", "repairs.shift.on": "[key, value]"},
    "channel_shift": {"repairs.shift.per": "channel"},
    "convolution": {"repairs.convolution.width": 3},
}  # fmt: skip
OPTIONS = SCORES | REPAIRS
OF_THE_MODEL = r"\b(parts|scores|repairs|positions)\."  # what a refused combination is said of
PRECISIONS = ("float32", "float64", "bfloat16")
FEW_ARMS = ("trained", "frozen_head_orthogonal", "frozen_orthogonal_repaired", "frozen_hadamard", "frozen_half",
            "late_unfreeze", "reservoir")  # fmt: skip
PRESETS = ("tiny", "small", "gpt2-124m")
TASKS = ("recall", "fuzzy_recall", "noisy_recall", "copy", "selective_copy", "induction", "hops", "memorise")
ENCODERS = ("bert", "roberta", "distilbert")
ENCODER_ARMS = ("fine_tuned", "fine_tuned_orthogonalised", "frozen_pretrained", "frozen_orthogonalised",
                "frozen_head_orthogonal", "frozen_normal", "trained_orthogonal_value", "train_then_freeze",
                "frozen_up", "frozen_half")  # fmt: skip
FINDINGS = ("xnli_bert", "tinystories_cpu", "tinystories_scale", "induction", "hops", "recall")
INVENTED = ("complete", "partial", "nasty", "classification", "solving", "looking")


class Refused(Exception):
    """A case that compares nothing."""


@dataclass(frozen=True)
class World:
    """Both sides, and the source tree that the old one comes from."""

    old: Side
    new: Side
    base: Path

    def both(self, case: str, arguments: Sequence[object], *, log: str = "command", **how: Any) -> None:
        """The same command on both sides, in the folder of the case; how it ended is stored too."""
        for side in (self.old, self.new):
            self.one(side, case, arguments, log=log, **how)

    def one(
        self,
        side: Side,
        case: str,
        arguments: Sequence[object],
        *,
        log: str = "command",
        may_refuse: str = "",
        **how: Any,
    ) -> None:
        """On one side. What the old one refuses shows nothing, unless what it says is the point (`may_refuse`)."""
        folder = self.folder(side, case)
        code = side.run(arguments, cwd=folder, log=log, **how)
        (folder / f"{log}.exit").write_text(f"{code}\n")
        if code and side is self.old:
            said = (folder / f"{log}.err").read_text(encoding="utf-8", errors="replace").strip()
            if not (may_refuse and re.search(may_refuse, said)):
                raise Refused(f"the old side does not do `oelm {' '.join(map(str, arguments[:4]))} ...`: {said[-300:]}")

    def folder(self, side: Side, case: str) -> Path:
        return side.root / slug(case)

    def hand_over(self, case: str, what: str) -> None:
        """What the old side has made becomes the new one's too."""
        source, target = (self.folder(side, case) / what for side in (self.old, self.new))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target)

    def apart(self, case: str, **how: Any) -> Iterator[Difference]:
        yield from differences(case, self.folder(self.old, case), self.folder(self.new, case), **how)


@dataclass(frozen=True)
class Case:
    name: str
    play: Callable[[World, str], Iterator[Difference]]
    cost: float = 1.0  # about how long, beside a run of twelve steps
    always: bool = False  # in every tenth too


def slug(case: str) -> str:
    return case.replace("/", "__").replace(" ", "_")


def pairs(settings: dict[str, Any]) -> list[str]:
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def training(arm: str, *, out: str | None = "run", data: str = DATA["text"], **settings: Any) -> list[str]:
    """Words of `oelm train`; a key with two underscores for its dot."""
    changes = {key.replace("__", "."): value for key, value in settings.items()}
    whole = SIZES | TRAINING | QUIET | {"precision": "float32"} | changes
    place = ["--out", out] if out else []
    return ["train", "--arm", arm, "--data", data, *place, *pairs({k: v for k, v in whole.items() if v is not None})]


def command(*arguments: object, **how: Any) -> Callable[[World, str], Iterator[Difference]]:
    """Both sides do it, and leave the same."""
    return commands(list(arguments), **how)


def commands(*several: Sequence[object], **how: Any) -> Callable[[World, str], Iterator[Difference]]:
    def play(world: World, case: str) -> Iterator[Difference]:
        for number, arguments in enumerate(several, 1):
            world.both(case, arguments, log=f"{number}-{arguments[0]}", **how)
        yield from world.apart(case)

    return play


# ---- Data -----------------------------------------------------------------------------------------------------------


def write_tokens(folder: Path, *, train: int, val: int, seed: int = 0) -> None:
    """train.bin and val.bin of 16-bit ids, with something to learn."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    for name, count in (("train", train), ("val", val)):
        tokens = array.array("H", [draw.randrange(64)])
        while len(tokens) < count:
            tokens.append((tokens[-1] * 5 + draw.randrange(4)) % 64)
        (folder / f"{name}.bin").write_bytes(tokens.tobytes())


def prepare(world: World) -> None:
    """What both sides read: tokens that no command has made, sentences and stories that each side prepares itself.

    What each needs to train, both kinds, is imported here, in the process that forks.
    """
    world.one(world.old, "data", ["encoders", "given", world.base / "tests"], log="given", script=HERE / "old_side.py")
    world.hand_over("data", "given")
    for side in (world.old, world.new):
        write_tokens(side.root / "data/text", train=500, val=400)  # twelve steps of four are two epochs
        write_tokens(side.root / "data/long", train=6000, val=4500, seed=1)
        stories = ["prepare", "stories", "--stories", 300, "--tokenizer", "bpe:300", "--workers", 1, "--out", "stories"]
        world.one(side, "data", stories, log="prepare-stories")
        for encoder in ENCODERS:
            words = ["--encoder", f"given/{encoder}", "--task", "pairs", "--out", encoder]
            world.one(side, "data", ["prepare", "given/sentences", *words], log=f"prepare-{encoder}")
        for words in (["--preset", "tiny", "--data", "data/long"], ["--preset", "fine-tuning", "--data", "data/bert"]):
            side.run(["train", "--dry-run", *words], cwd=side.root, here=True)


def data() -> Iterator[Case]:
    """What `prepare` has written."""

    def play(world: World, case: str) -> Iterator[Difference]:
        yield from world.apart(case, ignored=("given.*",))

    yield Case("data", play, always=True)


# ---- Runs -----------------------------------------------------------------------------------------------------------


def starts(arms: Sequence[str]) -> Iterator[Case]:
    """One step of no length: every number stays where it started, whether it is trained or not."""
    for number, arm in enumerate(arms):
        seeds = {"seeds.weights": 11 + number, "seeds.projections": 23 + number, "seeds.data": 3}
        words = training(
            arm, out=None, training__steps=1, warmup_steps=1, learning_rate=1e-60, checkpoint_every=1, num_layers=3,
            num_heads=2, **seeds,
        )  # fmt: skip
        yield Case(f"start/{arm}", command(*words))


def runs(arms: Sequence[str]) -> Iterator[Case]:
    """Every arm plain and with each option, in one precision; some in all three."""
    turn = 0
    for arm in arms:
        for option, settings in {"plain": {}, **OPTIONS}.items():
            turn += 1
            precision = PRECISIONS[(turn // 6) % 3] if turn % 6 == 0 else "float32"
            yield Case(
                f"run/{arm}/{option}/{precision}",
                command(*training(arm, precision=precision, **settings), may_refuse=OF_THE_MODEL),
            )
        for precision in PRECISIONS[1:]:
            yield Case(f"run/{arm}/plain/{precision}", command(*training(arm, precision=precision)))
    for turn, (score, repair) in enumerate((score, repair) for score in SCORES for repair in REPAIRS):
        settings, arm = SCORES[score] | REPAIRS[repair], arms[(7 * turn) % len(arms)]
        yield Case(f"run/{arm}/{score} {repair}/float32", command(*training(arm, **settings), may_refuse=OF_THE_MODEL))


UNTIED = {"tied": "false"}  # bit for bit; of tied ones intended.py says more


def resumed(arms: Sequence[str]) -> Iterator[Case]:
    """A run of the old side, killed half-way and continued by the new one, is the old side's that nothing disturbed."""

    def case(arm: str, name: str, *, ranks: int = 1, cost: float = 2.0, **settings: Any) -> Case:
        def play(world: World, case: str) -> Iterator[Difference]:
            words = training(arm, **settings)
            code = world.old.run(
                words, cwd=world.folder(world.old, f"{case}/killed"), killed_at="step-000006", ranks=ranks
            )
            killed = world.folder(world.old, f"{case}/killed") / "run"
            if code != KILLED or not killed.is_dir():
                yield Difference("run", f"the old side was not killed half-way: it ended with {code}")
                return
            target = world.folder(world.new, case) / "run"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(killed, target)
            shutil.rmtree(killed.parent)
            world.one(world.old, case, words, ranks=ranks)
            world.one(world.new, case, words, ranks=ranks)
            yield from world.apart(case, ignored=("training.log", "command.out", "command.err"), but=("resumes",))

        return Case(f"resumed/{name}", play, cost=cost)

    for number, arm in enumerate(arms):
        yield case(
            arm, arm, precision=PRECISIONS[number % 3] if number % 4 == 0 else "float32", dropout=0.1 * (number % 2)
        )
    for arm in FEW_ARMS[:4]:
        yield case(arm, f"two ranks/{arm}", ranks=2, cost=3.0, **UNTIED)
    yield case("trained", "two ranks/tied/trained", ranks=2, cost=3.0)


def ranks(arms: Sequence[str]) -> Iterator[Case]:
    for arm in arms[::4]:
        yield Case(f"two ranks/untied/{arm}", command(*training(arm, **UNTIED), ranks=2), cost=2.0)
    for arm in arms[2::8]:
        yield Case(f"two ranks/tied/{arm}", command(*training(arm), ranks=2), cost=2.0)


def variations() -> Iterator[Case]:
    """What else a run can be told, on a few arms."""
    told: dict[str, dict[str, Any]] = {
        "dropout": {"dropout": 0.2},
        "micro-batches": {"micro_batch_size": 1},
        "micro-batches of three": {"micro_batch_size": 3},
        "dropout in micro-batches": {"dropout": 0.2, "micro_batch_size": 2},
        "no clip": {"gradient_clip": "null"},
        "no decay": {"weight_decay": 0},
        "long": {"training.steps": 60, "checkpoint_every": 20},
        "wide": {"d_model": 64, "num_heads": 8, "d_ff": 96, "num_layers": 4},
        "one head": {"num_heads": 1, "num_layers": 1},
        "head scores": {"head_scores": "true"},
        "other seeds": {"seeds.weights": 5, "seeds.projections": 6, "seeds.data": 7},
        "two threads": {"threads": 2},
        "not deterministic": {"deterministic": "false"},
        "long data": {"data": DATA["long"]},
        "rare records": {"log_every": 5, "validate_every": 12, "checkpoint_every": 12},
    }
    for name, settings in told.items():
        for arm in FEW_ARMS:
            yield Case(f"variation/{name}/{arm}", command(*training(arm, **settings)))
    for arm in ("frozen_orthogonal_repaired", "every_n"):
        yield Case(f"variation/compiled/{arm}", command(*training(arm, compile="on")), cost=40)


ROLES = ("token_embedding", "position_embedding", "query", "key", "value", "output", "up", "down", "norm")
MATRICES = ROLES[2:8]
STARTS = ("normal", "scaled_normal", "xavier", "orthogonal", "head_orthogonal", "binary", "residual_normal",
          "identity", "selection", "signed_permutation", "hadamard")  # fmt: skip


def treatments(count: int) -> Iterator[Case]:
    """Parts as nobody has named them: starts, gains, shares, layers, moves. What cannot be is refused alike."""
    for number in range(count):
        draw, settings = random.Random(number), {}
        for role in draw.sample(MATRICES, draw.randint(1, 3)):
            part: dict[str, Any] = {"start": draw.choice(STARTS), "gain": draw.choice((1.0, 1.0, 0.5, 2.0))}
            kind = draw.choice(("always", "never", "every", "after", "before"))
            moves: dict[str, Any] = {"kind": kind}
            if kind == "every":
                moves["steps"] = draw.choice((2, 3, 5))
            if kind in ("after", "before"):
                moves["fraction"] = draw.choice((0.25, 0.5, 0.8))
            if kind == "after":
                moves["order"] = draw.choice(("together", "layer_by_layer"))
            part |= {"moves": moves}
            if draw.random() < 0.3:
                part["share"] = draw.choice((0.25, 0.5))
            if draw.random() < 0.3:
                part["layers"] = draw.choice(("odd", "even", "[0]"))
            settings[f"parts.{role}"] = json.dumps(part)
        words = training("trained", num_layers=3, **settings)
        yield Case(f"treatment/{number}", command(*words, may_refuse=OF_THE_MODEL))


# ---- Probes and encoders --------------------------------------------------------------------------------------------


def probes() -> Iterator[Case]:
    sizes = {"vocabulary": None, "seq_len": 32}
    for turn, task in enumerate(TASKS):
        for arm in FEW_ARMS[turn % 2 :: 2]:
            words = training(arm, data=f"probe:{task}?length=32", **sizes, head_scores="true")
            yield Case(f"probe/{task}/{arm}", command(*words))


def encoders() -> Iterator[Case]:
    turn = 0
    for encoder in ENCODERS:
        for arm in ENCODER_ARMS:
            turn += 1
            yield Case(f"encoder/{encoder}/{arm}", command(*_fine_tuning(encoder, arm, turn)), cost=1.5)
    for arm in ENCODER_ARMS[::3]:
        words = _fine_tuning("bert", arm, 1)
        yield Case(f"two ranks/encoder/{arm}", command(*words, ranks=2), cost=3)


def _fine_tuning(encoder: str, arm: str, turn: int, *, out: str = "run") -> list[str]:
    settings = TRAINING | QUIET | {"learning_rate": 1e-3, "dropout": 0.1 * (turn % 2)}
    settings |= {"precision": PRECISIONS[(turn // 5) % 3] if turn % 5 == 0 else "float32"}
    settings |= {"pretrained": "false"} if turn % 7 == 6 else {}
    place = ["--data", f"../data/{encoder}", "--out", out]
    return ["train", "--preset", "fine-tuning", "--arm", arm, *place, *pairs(settings)]


# ---- Text -----------------------------------------------------------------------------------------------------------


def texts(arms: Sequence[str], studies: Sequence[str]) -> Iterator[Case]:
    yield Case("text/arms", command("arms"))
    yield Case("text/keys", command("keys", "--json"))
    yield Case("text/studies", command("studies"))
    for preset in PRESETS:
        several = [["arms", arm, "--preset", preset] for arm in arms]
        yield Case(f"text/arms at {preset}", commands(*several), cost=4)
        dry = [
            ["train", "--dry-run", "--preset", preset, "--arm", arm, "--data", DATA["long"], "--set", "compile=off",
             "--set", "vocabulary=50257"]
            for arm in [arm for arm in arms if arm not in ENCODER_ARMS[:4]][::3]
        ]  # fmt: skip
        yield Case(f"text/dry runs at {preset}", commands(*dry), cost=4)
    for study in studies:
        yield Case(f"text/plan of {study}", command("plan", study), cost=2)


# ---- Reports --------------------------------------------------------------------------------------------------------


def reports() -> Iterator[Case]:
    for study in FINDINGS:

        def play(world: World, case: str, study: str = study) -> Iterator[Difference]:
            for side in (world.old, world.new):
                folder = world.folder(side, case)
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copy(world.base / f"docs/findings/{study}/runs.zip", folder / "runs.zip")
            words = ["--runs", "runs.zip"]
            world.both(case, ["report", study, *words, "--out", "report"], log="report")
            world.both(case, ["status", study, *words], log="status")
            world.both(case, ["plan", study, *words], log="plan")
            world.both(case, ["verify", study, *words], log="verify")
            yield from world.apart(case)

        yield Case(f"report/{study}", play, cost=90, always=study == "xnli_bert")
    for study in INVENTED:

        def play_invented(world: World, case: str, study: str = study) -> Iterator[Difference]:
            folder = world.folder(world.old, case)
            tests = world.base / "tests"
            paths = f"{world.base / 'src'}:{tests}:{tests / 'reporting'}"
            code = world.old.run(
                [study, folder / "stored", tests], cwd=folder, log="invented", script=HERE / "old_side.py"
            )
            if code:
                yield Difference("invented.err", (folder / "invented.err").read_text()[-400:] + paths)
                return
            world.hand_over(case, "stored")
            words = ["--runs", "stored/runs"]
            world.both(case, ["report", "stored/study.yaml", *words, "--out", "report"], log="report")
            world.both(case, ["status", "stored/study.yaml", *words], log="status")
            world.both(case, ["plan", "stored/study.yaml", *words], log="plan")
            yield from world.apart(case, ignored=("invented.*",))

        yield Case(f"report/{study}", play_invented, cost=45, always=study == "nasty")


# ---- What is done with runs ------------------------------------------------------------------------------------------


def verified(arms: Sequence[str]) -> Iterator[Case]:
    """Runs of the old side: both recompute their losses, and say the same of them."""

    def case(name: str, several: list[list[str]]) -> Case:
        def play(world: World, case: str) -> Iterator[Difference]:
            for words in several:
                world.one(world.old, case, words, log="train")
            world.hand_over(case, "runs")
            world.both(case, ["verify", "runs", "--all", "--json"], log="verify")
            yield from world.apart(case, ignored=("train.*",))

        return Case(f"verify/{name}", play, cost=len(several))

    for first in range(0, len(arms), 8):
        turn = [training(arm, out=f"runs/{arm}", dropout=0.1) for arm in arms[first : first + 8]]
        yield case(f"arms from {arms[first]}", turn)
    some = [training(FEW_ARMS[number % 7], out=f"runs/{name}", **OPTIONS[name]) for number, name in enumerate(OPTIONS)
            if name not in ("base_scale", "alibi")]  # fmt: skip
    yield case("options", some)
    sizes = {"vocabulary": None, "seq_len": 32}
    yield case(
        "probes", [training("trained", data=f"probe:{task}?length=32", out=f"runs/{task}", **sizes) for task in TASKS]
    )
    yield case("precisions", [training("frozen_half", precision=each, out=f"runs/{each}") for each in PRECISIONS])
    for encoder in ENCODERS:
        several = [_fine_tuning(encoder, arm, 1, out=f"runs/{arm}") for arm in ENCODER_ARMS[::2]]
        yield case(encoder, several)


def used() -> Iterator[Case]:
    """What commands make of one run: a folder for transformers, text, tables of heads, a diagnosis."""
    several: list[list[object]] = [
        ["diagnose", "run", "--json"],
        ["diagnose", "run/checkpoints/step-000006"],
        ["generate", "run", "--prompt", "Once", "--tokens", 20, "--samples", 2],
        ["probe", "run", "--json", "--length", 8, "--sequences", 3],
        ["export", "run", "--to", "exported", "--licence", "MIT"],
        ["export-metrics", "run", "--to", "csv", "--out", "metrics"],
        ["verify", "run"],
    ]
    for arm in FEW_ARMS:

        def play(world: World, case: str, arm: str = arm) -> Iterator[Difference]:
            world.one(world.old, case, training(arm, vocabulary=None, data="../data/stories"), log="train")
            world.hand_over(case, "run")
            for words in several:
                world.both(case, words, log=str(words[0]) + "-again" * ("step" in str(words[1])))
            yield from world.apart(case, ignored=("train.*",))

        yield Case(f"use/{arm}", play, cost=6)
    for arm in ("trained", "trained_head_orthogonal"):
        words = [[*training(arm)], ["export", "run", "--to", "exported", "--as", "gpt2"]]
        yield Case(f"use/as gpt2, {arm}", commands(*words), cost=3)
    for preset in PRESETS[:1]:
        several = [["diagnose", "--preset", preset, "--arm", arm, "--set", "vocabulary=64"] for arm in FEW_ARMS]
        yield Case(f"use/diagnose at {preset}", commands(*several), cost=6)


SMALL_STUDY: dict[str, Any] = {
    "question": {"en": "Can it stay frozen?", "zh": "可以保持冻结吗？"},
    "base": {
        "model": {key: SIZES[key] for key in SIZES if key != "vocabulary"} | {"vocabulary": 64},
        "training": {key.removeprefix("training."): value for key, value in TRAINING.items()},
        "execution": {"device": "cpu", "precision": "float32", "compile": "off", "threads": 1, "micro_batch_size": 4},
        "data": DATA["text"],
    },
    "arms": ["trained", "frozen_head_orthogonal", "frozen_scaled_normal"],
    "seeds": [0, 1, 2, 3],
    "hypotheses": [
        {"name": "cost", "claim": "It costs little.", "kind": "not_worse", "margin_percent": 5, "control": "trained",
         "treatment": "frozen_head_orthogonal", "varies": ["start", "scale", "moves"]},
        {"name": "start", "claim": "The start counts.", "kind": "better", "control": "frozen_scaled_normal",
         "treatment": "frozen_head_orthogonal", "varies": ["start"]},
    ],
}  # fmt: skip
PROBE_BASE: dict[str, Any] = SMALL_STUDY["base"] | {
    "model": {"d_model": 32, "num_layers": 2, "num_heads": 4, "seq_len": 32}, "data": "probe:recall?pairs=4&length=32",
}  # fmt: skip
STUDIES: dict[str, dict[str, Any]] = {
    "tuned": SMALL_STUDY
    | {"tuning": {"grid": {"training.learning_rate": [1e-3, 1e-2]}, "set": {"training.steps": 6}, "seeds": [100, 101]}},
    "halved": SMALL_STUDY
    | {
        "tuning": {
            "grid": {"training.learning_rate": [3e-4, 1e-3, 3e-3, 1e-2]}, "seeds": [100, 101, 102],
            "method": "halving", "choose": "fitted", "margin": 0.01,
        }
    },
    "sized": SMALL_STUDY | {"sizes": {"steps": [6, 12], "deep": {"num_layers": 3}}, "looks": "none"},
    "probing": SMALL_STUDY
    | {
        "base": PROBE_BASE,
        "hypotheses": [
            {"name": "more", "claim": "It solves more.", "kind": "solves_more", "solved_at": 0.2, "varies": ["start"],
             "treatment": "frozen_head_orthogonal", "control": "frozen_scaled_normal"},
        ],
    },
}  # fmt: skip


def studied() -> Iterator[Case]:
    """A study from plan to archive: its runs, choices, looks, verdicts and report."""
    for name, tree in STUDIES.items():

        def play(world: World, case: str, name: str = name, tree: dict[str, Any] = tree) -> Iterator[Difference]:
            for side in (world.old, world.new):
                folder = world.folder(side, case)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{name}.yaml").write_text(json.dumps(tree, ensure_ascii=False))
            study = f"{name}.yaml"
            for verb in ("plan", "register", "run"):
                world.both(case, [verb, study, *(["--slots", 1] if verb == "run" else [])], log=verb)
            apart = list(world.apart(case))
            yield from apart
            if apart:
                return
            shutil.rmtree(world.folder(world.new, case) / "runs")
            world.hand_over(case, "runs")  # times stand in what is said of runs
            for verb in ("status", "report", "verify"):
                world.both(case, [verb, study, *(["--all"] if verb == "verify" else [])], log=verb)
            world.both(case, ["plan", study], log="plan-after")
            world.both(case, ["archive", study, "--to", f"{name}.zip"], log="archive")
            world.both(case, ["export-metrics", study, "--to", "csv", "--out", "metrics"], log="export")
            words = ["results", "frames", study, f"runs/{name}"]
            world.both(case, words, log="results", script=HERE / "documented.py")
            yield from world.apart(case)

        yield Case(f"study/{name}", play, cost=150, always=name == "probing")


def documented() -> Iterator[Case]:
    script = HERE / "documented.py"
    yield Case("documented/apply", command("apply", "found", script=script), cost=8)
    yield Case("documented/classes", command("classes", "found", script=script), cost=4)


def originals() -> Iterator[Case]:
    """Scripts of the original experiments, each side's own."""
    small = ["--d_model", 32, "--num_layers", 2, "--num_heads", 4, "--seq_len", 16, "--max_steps", 12]
    quiet = ["--set", "precision=float32", "--set", "threads=1", "--set", "compile=off", "--set", "vocabulary=64"]
    place = ["--data_path", "../data/text/train.bin", "--out_dir", "run"]
    several: dict[str, tuple[str, list[object]]] = {
        "train_v2": ("scripts/train_v2.py", ["--model_type", "oelm_v2", *small, *quiet, *place]),
        "train": (
            "scripts/02-训练脚本/train.py",
            ["--model_type", "oelm", "--freeze_qk", "true", *small, *quiet, *place],
        ),
        "diagnose": ("scripts/diagnose_freeze.py", [*small[:6], "--vocab_size", 64]),
    }
    for name, (file, words) in several.items():

        def play(world: World, case: str, file: str = file, words: list[object] = words) -> Iterator[Difference]:
            for side in (world.old, world.new):
                world.one(side, case, words, script=side.source.parent / file)
            yield from world.apart(case)

        yield Case(f"originals/{name}", play, cost=3)


def all_cases(arms: Sequence[str], studies: Sequence[str]) -> list[Case]:
    """Long ones first: two cores are busy to the end."""
    gpt = [arm for arm in arms if arm not in ENCODER_ARMS[:4]]
    return [
        *data(),
        *studied(),
        *reports(),
        *documented(),
        *originals(),
        *texts(arms, studies),
        *verified(gpt),
        *used(),
        *variations(),
        *resumed(gpt),
        *ranks(gpt),
        *starts(gpt),
        *probes(),
        *encoders(),
        *treatments(60),
        *runs(gpt),
    ]
