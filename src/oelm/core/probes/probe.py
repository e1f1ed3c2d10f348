"""A probe as a run names it, `probe:recall?pairs=4,8&length=64`: read, checked, and written with every option."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oelm.core.probes.tasks import TASKS, Option, Options, Task, Value

PREFIX = "probe:"
TASK_KEY = "probe"  # of the same as keys and values
SPLITS = ("train", "tune", "val", "test")
GENERATION = 1  # of the generators: another number, other examples


class WrongProbe(ValueError):
    """One line per problem."""


@dataclass(frozen=True)
class Probe:
    task: Task
    difficulties: tuple[int, ...]
    options: Options

    @property
    def length(self) -> int:
        return int(self.options["length"])

    @property
    def vocabulary(self) -> int:
        return int(self.options["vocabulary"])

    def __str__(self) -> str:
        """With every option in the order of its table: one text for one probe."""
        dial = ",".join(map(str, self.difficulties))
        options = (f"{name}={value}" for name, value in self.options.items())
        return f"{PREFIX}{self.task.name}?{'&'.join((f'{self.task.dial}={dial}', *options))}"

    @property
    def name(self) -> str:
        """As a table or a caption calls it."""
        dial = ", ".join(map(str, self.difficulties))
        return f"{self.task.name} ({self.task.dial} {dial}; length {self.length})"

    @property
    def digest(self) -> str:
        """Of all examples: what they are made from."""
        return hashlib.sha256(f"{GENERATION} {self}".encode()).hexdigest()

    @property
    def blind_chance(self) -> float:
        """Of a guess among all tokens."""
        return 1 / self.vocabulary

    @property
    def chances_in_context(self) -> dict[int, float]:
        """By difficulty: of a guess among what the context offers; nothing where it offers no answer."""
        offered = self.task.candidates
        return {} if offered is None else {each: 1 / offered(each, self.options) for each in self.difficulties}

    def answers_at(self, difficulty: int) -> int:
        return self.task.answers(difficulty, self.options)


def is_probe(data: str) -> bool:
    return data.startswith(PREFIX)


def probe_of(data: str) -> Probe:
    """What a text names; WrongProbe says everything that is wrong with it."""
    name, _, rest = data.removeprefix(PREFIX).partition("?")
    if name not in TASKS:
        close = difflib.get_close_matches(name, TASKS, n=1)
        advice = f"did you mean {close[0]}?" if close else f"known: {', '.join(TASKS)}"
        raise WrongProbe(f"{PREFIX}{name}: unknown task; {advice}")
    task = TASKS[name]
    stated: dict[str, str] = {}
    for piece in filter(None, rest.split("&")):
        key, equals, value = piece.partition("=")
        if not equals:
            example = f"{PREFIX}{name}?{task.dial}={','.join(map(str, task.usual))}&length=64"
            raise WrongProbe(f"{PREFIX}{name}: {piece!r} is not OPTION=VALUE, as in {example}")
        if key in stated:
            raise WrongProbe(f"{PREFIX}{name}: {key} occurs twice")
        stated[key] = value
    return _checked(task, stated)


def written(data: Any) -> Any:
    """A probe given as keys and values, as the text that says the same; anything else as it is."""
    if not isinstance(data, Mapping):
        return data
    if not isinstance(name := data.get(TASK_KEY), str):
        raise WrongProbe(f"names no task; write probe: {next(iter(TASKS))}, or the data as one text")
    if "?" in name:
        raise WrongProbe(f"probe: {name!r} is not the name of a task; options are keys beside it, or the data one text")
    values = {key: value if isinstance(value, list | tuple) else [value] for key, value in data.items()}
    pieces = (f"{key}={','.join(map(str, several))}" for key, several in values.items() if key != TASK_KEY)
    return f"{PREFIX}{name}?{'&'.join(pieces)}"


def canonical(data: str) -> str:
    """A probe with every option; the name of a folder as it is."""
    return str(probe_of(data)) if is_probe(data) else data


def _checked(task: Task, stated: Mapping[str, str]) -> Probe:
    known = [task.dial, *(option.name for option in task.options)]
    problems = [f"{key}: no option of {task.name}; it has {', '.join(known)}" for key in stated if key not in known]
    options: dict[str, Value] = {}
    for option in task.options:
        try:
            options[option.name] = _value(option, stated[option.name]) if option.name in stated else option.default
        except WrongProbe as error:
            problems.append(str(error))
    difficulties = task.usual
    try:
        if task.dial in stated:
            difficulties = _difficulties(task, stated[task.dial])
    except WrongProbe as error:
        problems.append(str(error))
    if not problems:
        if task.dial not in stated:  # the usual ones that fit, else the first of them, whose problems are then said
            fit = tuple(each for each in task.usual if not list(task.problems(each, options)))
            difficulties = fit or task.usual[:1]
        problems += [problem for each in difficulties for problem in task.problems(each, options)]
    if problems:
        raise WrongProbe("\n".join(f"{PREFIX}{task.name}: {line}" for line in dict.fromkeys(problems)))
    return Probe(task, difficulties, options)


def _value(option: Option, text: str) -> Value:
    kind = "a whole number" if option.is_whole else "a number"
    try:
        value = int(text) if option.is_whole else float(text)
    except ValueError:
        raise WrongProbe(f"{option.name}: must be {kind}, not {text[:40]!r}") from None
    if not option.least <= value <= option.most:
        limit = f"at least {option.least}" if not value >= option.least else f"at most {option.most}"
        raise WrongProbe(f"{option.name}: must be {limit}, not {text[:40]}")
    return value


def _difficulties(task: Task, text: str) -> tuple[int, ...]:
    values = tuple(int(_value(Option(task.dial, 1, ""), piece)) for piece in text.split(","))
    if list(values) != sorted(set(values)):
        raise WrongProbe(f"{task.dial}: {text[:80]} must be in ascending order, each once")
    return values
