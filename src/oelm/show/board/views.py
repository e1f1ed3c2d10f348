"""The content of each page as JSON: every text in it is text, with control characters as visible escapes."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oelm.core.sources import SOURCE_SCHEME, differ, scheme_of
from oelm.machine.errors import UserError
from oelm.machine.visible import visible
from oelm.run.directory import COMPARED_ENVIRONMENT, RunDirectory, checkpoint_step, flat
from oelm.run.sealing import read_config
from oelm.show.board.follow import KIND_OF, VALUES
from oelm.show.board.glance import ENDED, WITHOUT_NUMBERS, Checked
from oelm.show.board.places import SINGLE
from oelm.show.board.standing import Standing, arms_of, drawn_as
from oelm.show.board.state import Board
from oelm.show.board.watch import Watch
from oelm.show.figures.canvas import look_at, look_of
from oelm.storage.files import FOR_READING, REPORT_RESULTS, Damaged, read_object
from oelm.storage.schemas import Environment, Parameters, Sample, Stored, read_record
from oelm.study.declaration import Language, in_language
from oelm.study.shelf import StoredRun

Tree = dict[str, Any]
LOG_BYTES = 2**15  # of the end of a log
LOG_LINES = 200
MOST_COMPARED = 20
MOST_APART = 20_000  # points of all seeds together, drawn apart
FEWEST_POINTS = 20  # of each run, however many there are
DEFAULT = "val_loss"  # what is drawn unless something else is asked for
REPORTS = Path("reports")


def readable(value: Any) -> Any:
    """What may go into a page: texts without acting characters, and no number that JSON lacks."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(key): readable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [readable(each) for each in value]
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value if value is None or isinstance(value, int) else visible(value)


# ---- Studies -------------------------------------------------------------------------------------------------------


def study(board: Board, name: str, language: Language, *, wants_standing: bool = True) -> Tree | None:
    """The rows at once; where it stands as soon as that is known, if that is wanted: a page that has nothing to show
    yet asks for its curves first."""
    watch = board.watch(name)
    if watch is None or name == SINGLE:
        return None
    with board.answering(asks_for_more=True), watch.lock:
        watch.refresh()
        known = _rows(watch) | {"left_out": list(watch.left_out)}
    if wants_standing:
        board.want_standing(name)
    standing = board.known_standing(name)
    tree = {"name": name, "standing": None, "problem": None, **_report(board, name, standing), **known}
    if isinstance(standing, Standing):
        return tree | {"standing": standing.tree(language)}
    try:
        declared = board.declared(board.found().studies[name])
    except (UserError, OSError, KeyError) as error:
        return tree | {"problem": standing or str(error), "arms": _arms_of(watch)}
    question = in_language(declared.question, language)
    return tree | {"problem": standing, "question": question, "arms": arms_of(declared, language)}


def rows(board: Board, name: str) -> Tree | None:
    """Of a study whose page is there and goes on."""
    watch = board.watch(name)
    if watch is None or name == SINGLE:
        return None
    with watch.lock:
        return _rows(watch)


def _rows(watch: Watch) -> Tree:
    return {"version": watch.version, "standing_version": watch.standing_version, "rows": list(watch.rows.values())}


def _arms_of(watch: Watch) -> list[Tree]:
    """Of a study whose declaration is not here: what its runs call themselves."""
    names = sorted({row["arm"] for row in watch.rows.values() if row["stage"] == "final" and row["arm"]})
    return [
        {"key": arm, "label": arm, "is_baseline": False, "flops_per_token": None, **drawn_as(look_at(place))}
        for place, arm in enumerate(names)
    ]


def curves(board: Board, name: str, y: str) -> Tree | None:
    """Of all arms of a study: what is recorded together with `y`, and not what nobody looks at."""
    kind = KIND_OF[_drawn(y)]
    return _of_followed(board, name, kind, lambda watch: {"values": VALUES[kind], "bands": watch.bands(kind)})


def seeds(board: Board, name: str, y: str) -> Tree | None:
    """Every final run of a study apart: at most MOST_APART points together, or FEWEST_POINTS a run if that is more."""
    y = _drawn(y)
    return _of_followed(board, name, KIND_OF[y], lambda watch: {"y": y, "runs": _apart(watch, y)})


def _drawn(y: str) -> str:
    return y if y in KIND_OF else DEFAULT


def _of_followed(board: Board, name: str, kind: str, compute: Callable[[Watch], Tree]) -> Tree | None:
    """What is computed of a study whose metric files are followed from now on; None where there is no such study."""
    watch = board.watch(name)
    if watch is None or name == SINGLE:
        return None
    with board.answering(asks_for_more=True), watch.lock:
        watch.refresh()
        watch.follow_all(kind)
        return {"version": watch.version, **compute(watch)}


def _apart(watch: Watch, y: str) -> Tree:
    arms = watch.arms_of(watch.rows)
    most = max(FEWEST_POINTS, MOST_APART // max(1, len(arms)))
    return {id: {"arm": arm, "points": watch.curve_of(id, y, most=most)} for id, arm in arms.items()}


# ---- Reports -------------------------------------------------------------------------------------------------------


def _report(board: Board, name: str, standing: Standing | str | None) -> Tree:
    """In which languages there is one, and whether it is of other results than these, as far as that is known."""
    folder = _report_folder(board, name)
    if folder is None:
        return {"report": [], "report_is_other": False}
    languages = [language for language in ("en", "zh") if _is_file(folder / f"report.{language}.html")]
    is_other = False
    if isinstance(standing, Standing) and standing.findings is not None:
        is_other = _reported(folder)[1] != {arm: each.losses for arm, each in standing.findings.arms.items()}
    return {"report": languages, "report_is_other": is_other}


def report_file(board: Board, name: str, language: str) -> Path | None:
    folder = _report_folder(board, name)
    file = folder / f"report.{language}.html" if folder else None
    return file if file is not None and _is_file(file) else None


def _report_folder(board: Board, name: str) -> Path | None:
    """Of this study, as `oelm report` writes it, or beside an archive as findings have it. A link is not followed."""
    place = board.found().studies.get(name)
    if place is None or "/" in place.name:
        return None
    try:
        study = board.declared(place).name
    except (UserError, OSError):
        study = place.name
    folders = (REPORTS / place.path.name, REPORTS / study, place.path.parent / "report")
    return next((each for each in folders if not each.is_symlink() and _reported(each)[0] == study), None)


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _reported(folder: Path) -> tuple[str | None, dict[str, dict[int, float]]]:
    """Of which study a report is, and of which losses, by arm and seed; None: there is no report there."""
    file = folder / REPORT_RESULTS
    try:
        return _reported_in(file, file.stat().st_mtime_ns) if _is_file(file) else (None, {})
    except (OSError, UserError, TypeError, ValueError, KeyError, AttributeError):
        return None, {}


@functools.lru_cache(maxsize=64)
def _reported_in(file: Path, changed: int) -> tuple[str, dict[str, dict[int, float]]]:
    found = read_object(file)
    losses = {arm: each["losses"].items() for arm, each in found["arms"].items()}
    return found["study"]["name"], {arm: {int(seed): loss for seed, loss in of_arm} for arm, of_arm in losses.items()}


# ---- Runs ----------------------------------------------------------------------------------------------------------


def run(board: Board, id: str) -> Tree | None:
    watch = board.watch_of_run(id)
    if watch is None:
        return None
    with watch.lock:
        place, row, arm = watch.places[id], watch.rows[id], watch.arm_of(id)
        checked = watch.remembered.known(place)
        drawn = {name: {"points": watch.curve_of(id, name)} for name in KIND_OF}
        known = {"version": watch.version, "row": row, "arm": arm or row["arm"], "curves": drawn}
    board.want_standing(watch.name)  # which arm of the study it is, and so how it is drawn
    directory = place.directory
    problems: list[str] = []
    stored = _numbers_of(directory, row["state"], checked, problems)
    return {
        **known,
        "study": watch.name,
        "look": _look(board, watch, id),
        "path": str(place.path),
        **stored,
        "checkpoints": _checkpoints(directory, problems),
        "log": log_of(directory),
        "sample": _record(directory.sample_file, Sample, problems) or None,
        "problems": problems,
    }


def _numbers_of(directory: RunDirectory, state: str, checked: Checked | None, problems: list[str]) -> Tree:
    """What a run is and computed: as checked if it has ended, nothing of a damaged one, else as its files say."""
    config, environment, parameters, result = {}, {}, {}, {}
    if state in ENDED and isinstance(checked, StoredRun) and checked.ended is not None:
        config = flat(checked.run.model_dump(mode="json"))
        environment, parameters, result = checked.environment, checked.parameters, checked.result or {}
    elif state not in (*ENDED, *WITHOUT_NUMBERS):
        try:
            config = flat(read_config(directory).run.model_dump(mode="json"))
        except (OSError, UserError) as error:
            problems.append(str(error))
        environment = _record(directory.environment_file, Environment, problems)
        parameters = _record(directory.parameters_file, Parameters, problems)
    return {
        "config": config,
        "environment": flat(environment),
        "result": flat(result),
        "counts": {key: parameters.get(key) for key in ("total", "trainable", "frozen", "implied")},
        "parts": _by_role(parameters.get("parts", [])),
        "heads": None if state in WITHOUT_NUMBERS else directory.last_head_scores(),
    }


def _look(board: Board, watch: Watch, id: str) -> Tree | None:
    """That of its arm, wherever the study is drawn; None: a run of no study, or of no arm of it."""
    arm = watch.arm_of(id) or watch.rows[id]["arm"]
    if watch.name == SINGLE or arm is None:
        return None
    try:
        declared = board.declared(board.found().studies[watch.name])
    except (UserError, OSError, KeyError):
        return next((each for each in _arms_of(watch) if each["key"] == arm), None)
    return drawn_as(look_of(declared, arm)) if arm in declared.arms else None


def log(board: Board, id: str) -> Tree | None:
    watch = board.watch_of_run(id)
    return None if watch is None else {"log": log_of(watch.places[id].directory)}


def log_of(directory: RunDirectory) -> list[str]:
    """The last lines of what a run wrote, or of what its process printed."""
    for file in (directory.log_file, directory.output_file):
        text = _tail(file)
        if text:
            return text.splitlines()[-LOG_LINES:]
    return []


def _tail(file: Path) -> str:
    try:
        descriptor = os.open(file, FOR_READING | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return ""
        start = max(0, found.st_size - LOG_BYTES)
        stream.seek(start)
        text = stream.read(LOG_BYTES).decode(errors="replace")
    return text.partition("\n")[2] if start else text


def _record(file: Path, shape: type[Stored], problems: list[str]) -> Tree:
    try:
        return read_record(file, shape)
    except FileNotFoundError:
        return {}
    except (OSError, Damaged) as error:
        problems.append(str(error))
        return {}


def _by_role(parts: list[Tree]) -> list[Tree]:
    """Sums over the layers."""
    found: dict[str, Tree] = {}
    for part in parts:
        row = found.setdefault(part["role"], {"role": part["role"], "total": 0, "frozen": 0})
        row["total"] += part["total"]
        row["frozen"] += part["frozen"]
    return [row | {"trainable": row["total"] - row["frozen"]} for row in found.values()]


def _checkpoints(directory: RunDirectory, problems: list[str]) -> list[Tree]:
    found: list[Tree] = []
    try:
        folders = directory.stored_checkpoints()
    except OSError as error:
        problems.append(str(error))
        return found
    for folder in folders:
        try:
            files = [entry.stat(follow_symlinks=False) for entry in os.scandir(folder)]
        except OSError:
            continue
        changed = max((each.st_mtime for each in files), default=None)
        step, size = checkpoint_step(folder), sum(each.st_size for each in files)
        found.append({"name": folder.name, "step": step, "bytes": size, "changed": changed})
    return found


# ---- Side by side --------------------------------------------------------------------------------------------------


def compare(board: Board, ids: list[str]) -> Tree | None:
    """None where none of them is here; those that are not are named."""
    found = {id: run(board, id) for id in ids[:MOST_COMPARED]}
    runs = [each for each in found.values() if each is not None]
    if not runs:
        return None
    settings = [_settings(each) for each in runs]
    keys = sorted({key for each in settings for key in each})
    return {
        "gone": [id for id, each in found.items() if each is None],
        "runs": [{key: each[key] for key in ("row", "arm", "curves", "study", "look", "version")} for each in runs],
        "differences": [
            {"key": key, "values": [each.get(key) for each in settings]} for key in keys if differ(key, settings)
        ],
    }


def _settings(of_run: Tree) -> Tree:
    environment = of_run["environment"]
    compared = {key: environment.get(key) for key in COMPARED_ENVIRONMENT}
    config: Tree = of_run["config"]
    return config | compared | {SOURCE_SCHEME: scheme_of(environment)}
