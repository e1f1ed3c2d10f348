"""From a preset or a YAML file, an arm and --set pairs to validated settings, before torch is imported.

Every problem becomes one line with its dotted key and, where there is one, a suggestion.
"""

from __future__ import annotations

import difflib
import math
import re
import reprlib
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from oelm.arms import ARMS, canonical_name
from oelm.arms import arm as arm_named
from oelm.config import FORMAT_VERSION, MIGRATIONS, PRESETS, Encoder, Model, Run, Settings, kind_of_model
from oelm.errors import UserError

DEFAULT_PRESET = "tiny"
DEFAULT_ARMS = {"gpt": "trained", "encoder": "fine_tuned"}  # by the kind of model

# ---- YAML whose numbers are numbers --------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """YAML 1.2's scalars: 3e-4 is a number, and only true and false are booleans. A repeated key is an error."""

    yaml_implicit_resolvers: dict = {}  # noqa: RUF012 - the name and type PyYAML looks for

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise UserError(f"{_place(key_node)}: the key {key!r} is not a word")
            if key in seen:
                raise UserError(f"{_place(key_node)}: the key {key!r} is there twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


def _place(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"


for _tag, _pattern, _first in (
    ("tag:yaml.org,2002:bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("tag:yaml.org,2002:null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:int", r"^[-+]?[0-9]+$", list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        list("-+0123456789."),
    ),
):
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), _first)


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int | float:
    """Python refuses to read thousands of digits as a whole number; as a float they are infinite, and refused."""
    return int(node.value) if len(node.value) < 400 else float(node.value)


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


MOST_VALUES = 10_000


def _values(node: yaml.Node | None, known: dict[int, float]) -> float:
    """How many values a node stands for once its aliases are followed; infinite if one leads back to itself."""
    if id(node) not in known:
        known[id(node)] = math.inf
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        inner = [part for pair in parts for part in pair] if isinstance(node, yaml.MappingNode) else parts
        known[id(node)] = 1 + sum(_values(part, known) for part in inner)
    return known[id(node)]


def read_yaml(text: str, *, name: str) -> Any:
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if _values(node, {}) > MOST_VALUES:
            raise UserError(f"holds more than {MOST_VALUES:,} values, or one that holds itself")
        return None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        where = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{name}:{where} is not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{name}: is not YAML: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise UserError(f"{name}: is nested too deeply") from error
    except UserError as error:
        raise UserError(f"{name}: {error}") from error


def read_yaml_file(path: Path) -> Any:
    try:
        return read_yaml(path.read_text(encoding="utf-8"), name=str(path))
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


# ---- Keys ----------------------------------------------------------------------------------------------------------


def _models_of(annotation: Any) -> list[type[BaseModel]]:
    """The kinds of section a key may hold, one unless it is a choice: the two kinds of model."""
    if annotation == Run.model_fields["model"].annotation:
        return [Model, Encoder]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []


def known_keys(model: type[BaseModel] = Settings, prefix: str = "") -> list[str]:
    """Every dotted key a config file may hold. `run.` is left out: a file writes model.d_model."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        path = prefix if (model is Settings and name == "run") else f"{prefix}{name}"
        inner = _models_of(field.annotation)
        keys.extend(key for each in inner for key in known_keys(each, f"{path}." if path else ""))
        if not inner:
            keys.append(path)
    return list(dict.fromkeys(keys))


def sections() -> list[str]:
    """What stands before the last dot of the known keys: model, model.attention, ..."""
    return sorted({key[:end] for key in known_keys() for end, character in enumerate(key) if character == "."})


_MOVES_KEYS = ("kind", "steps", "fraction", "order")


def full_key(key: str) -> str:
    """The dotted key meant by `key`: itself, or the only key that ends in it."""
    keys = known_keys()
    head, _, tail = key.rpartition(".")
    if key in keys or (tail in _MOVES_KEYS and head in keys and head.endswith(".moves")):
        return key
    endings = [known for known in keys if known.endswith(f".{key}")]
    if len(endings) == 1:
        return endings[0]
    if endings:
        raise UserError(f"--set {key}: could be {', '.join(endings)}; write it in full")
    close = difflib.get_close_matches(key, [*keys, *(k.rpartition(".")[2] for k in keys)], n=1)
    raise UserError(f"--set {key}: unknown key" + (f"; did you mean {close[0]}?" if close else ""))


# ---- Reading -------------------------------------------------------------------------------------------------------


def load_settings(
    source: str | None = None,
    *,
    preset: str | None = None,
    arm: str | None = None,
    data: str | None = None,
    seed: int | None = None,
    assignments: tuple[str, ...] | list[str] = (),
) -> Settings:
    """Settings from a config file or a preset; then the arm, the data, the seed, the --set pairs, in this order."""
    tree = file_tree(Path(source)) if source is not None else {}
    if source is None or preset is not None:
        tree = _merged(_preset_tree(preset or DEFAULT_PRESET), tree)
    if data is not None:
        tree["data"] = data
    values = dict(_assignment(text) for text in assignments)
    return settings_of(tree, name=source or f"preset {preset or DEFAULT_PRESET}", arm=arm, seed=seed, values=values)


def settings_of(
    tree: dict[str, Any],
    *,
    name: str,
    arm: str | None = None,
    seed: int | None = None,
    values: dict[str, Any] | None = None,
) -> Settings:
    """Settings of a config tree; then the arm, the seed and single values by their keys, in this order."""
    tree = dict(tree)
    if arm is not None:
        tree["arm"] = arm
    if seed is not None:
        tree["seeds"] = {"weights": seed, "projections": seed, "data": seed}
    tree = _with_arm(tree)
    for key, value in (values or {}).items():
        _assign(tree, key, value)
    settings = validated(tree, name=name)
    return settings.model_copy(update={"run": _labelled(settings.run)})


def validated(tree: dict[str, Any], *, name: str) -> Settings:
    run_tree = {key: value for key, value in tree.items() if key != "execution"}
    shaped = {"run": run_tree, "execution": tree.get("execution", {})}
    try:
        return Settings.model_validate(shaped)
    except ValidationError as error:
        raise UserError("\n".join(f"{name}: {line}" for line in problem_lines(error))) from error


def written_out(settings: Settings) -> dict[str, Any]:
    """Settings as a config file that gives them back. A spec without a name of its own is written without one."""
    tree = {**settings.run.model_dump(mode="json"), "execution": settings.execution.model_dump(mode="json")}
    return tree if settings.run.arm in ARMS else {key: value for key, value in tree.items() if key != "arm"}


def stored_run(tree: Any, *, name: str) -> Run:
    """A run from the config.json of a run directory."""
    if not isinstance(tree, dict) or "format_version" not in tree:
        raise UserError(f"{name}: not a run's config (no format_version)")
    tree = dict(tree)
    version = tree.pop("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION or version < min(MIGRATIONS):
        raise UserError(
            f"{name}: has format version {version}, this oelm reads up to {FORMAT_VERSION}; use a newer oelm"
        )
    try:
        for old in range(version, FORMAT_VERSION):
            tree = MIGRATIONS[old](tree)
    except (KeyError, TypeError) as error:
        raise UserError(f"{name}: is not a whole config of format version {version} (at {error})") from error
    return validated(tree, name=name).run


def file_tree(path: Path) -> dict[str, Any]:
    """The keys of a config file, with its preset put below them."""
    if path.is_dir():
        raise UserError(f"{path}: is a folder, not a config file; data goes with --data, a run with --out")
    if not path.is_file():
        known = ", ".join(PRESETS)
        raise UserError(f"{path}: no such config file (a preset is chosen with --preset: {known})")
    tree = read_yaml_file(path)
    if tree is None:
        raise UserError(f"{path}: is empty; a config holds at least one of: {', '.join(Run.model_fields)}, execution")
    if not isinstance(tree, dict):
        raise UserError(f"{path}: holds a {type(tree).__name__}, not keys and values")
    return with_preset(tree)


def with_preset(tree: dict[str, Any]) -> dict[str, Any]:
    """The preset a tree names, below its own keys."""
    own = {key: value for key, value in tree.items() if key != "preset"}
    return _merged(_preset_tree(str(tree["preset"])), own) if "preset" in tree else own


def _preset_tree(preset: str) -> dict[str, Any]:
    if preset not in PRESETS:
        close = difflib.get_close_matches(preset, PRESETS, n=1)
        suggestion = f"; did you mean {close[0]}?" if close else ""
        raise UserError(f"preset: unknown name {preset!r}{suggestion} (known: {', '.join(PRESETS)})")
    return PRESETS[preset].model_dump(mode="json", exclude={"arm": True, "model": {"attention"}})


def _with_arm(tree: dict[str, Any]) -> dict[str, Any]:
    """An arm's name is replaced by its spec; what the file writes out of model.attention goes on top of it."""
    model = tree.get("model", {})
    if not isinstance(model, dict):
        return tree  # validation names the problem
    name = tree.get("arm", DEFAULT_ARMS[kind_of_model(model)])
    if not isinstance(name, str):
        return tree
    spec = arm_named(name).model_dump(mode="json")
    written_out = model.get("attention", {})
    attention = _merged(spec, written_out) if isinstance(written_out, dict) else written_out
    return {**tree, "arm": canonical_name(name), "model": {**model, "attention": attention}}


def _labelled(run: Run) -> Run:
    """A name stands for its spec: a run whose spec was changed by hand is called custom."""
    return run if run.model.attention == arm_named(run.arm) else run.model_copy(update={"arm": "custom"})


def _assignment(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UserError(f"--set {text}: write key=value, for example --set training.learning_rate=3e-4")
    if key == "arm":
        raise UserError("--set arm: an arm is chosen with --arm NAME, or with arm: NAME in the config file")
    return full_key(key.strip()), read_yaml(value, name=f"--set {key}")


def _assign(tree: dict[str, Any], key: str, value: Any) -> None:
    path = key.split(".")
    node = tree
    for part in path[:-1]:
        inner = node.get(part)
        node[part] = dict(inner) if isinstance(inner, dict) else {}
        node = node[part]
    node[path[-1]] = value


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        tagged = both and value.get("kind", merged[key].get("kind")) != merged[key].get("kind")
        merged[key] = _merged(merged[key], value) if both and not tagged else value
    return merged


# ---- Problems, one line each ----------------------------------------------------------------------------------------


def problem_lines(error: ValidationError, *, model: type[BaseModel] = Settings) -> list[str]:
    """One line a problem; `model` is what was validated, for the suggestions."""
    known = [*known_keys(), *sections()] if model is Settings else _field_names(model)
    return [_problem_line(problem, known) for problem in error.errors()]


def _field_names(model: type[BaseModel]) -> list[str]:
    """Of a model and of every one inside it, also in lists and mappings."""
    names = list(model.model_fields)
    for field in model.model_fields.values():
        for inner in (field.annotation, *_arguments(field.annotation)):
            for each in _models_of(inner):
                names += _field_names(each)
    return names


def _arguments(annotation: Any) -> list[Any]:
    found = list(get_args(annotation))
    return found + [inner for each in found for inner in _arguments(each)]


def _problem_line(problem: Any, known: list[str]) -> str:
    key = _dotted(problem["loc"])
    value, kind = problem.get("input"), problem["type"]
    if kind == "extra_forbidden":
        last = key.rpartition(".")[2]
        close = difflib.get_close_matches(key, known, n=1, cutoff=0.5) or difflib.get_close_matches(last, known, n=1)
        return f"{key}: unknown key" + (f"; did you mean {close[0]}?" if close else "")
    if kind == "missing":
        return f"{key}: is missing"
    if kind == "value_error":
        return f"{key}: {problem['ctx']['error']}" if key else str(problem["ctx"]["error"])
    if isinstance(value, str) and kind in ("float_type", "int_type") and _is_number(value):
        finite = math.isfinite(float(value))
        advice = f"is a quoted number; write it without quotes: {value}" if finite else "is not a finite number"
        return f"{key}: {_shown(value)} {advice}"
    if kind == "literal_error":
        expected = problem["ctx"]["expected"]
        close = difflib.get_close_matches(str(value), re.findall(r"'([^']*)'", expected), n=1)
        return f"{key}: {_shown(value)} is not one of {expected}" + (f"; did you mean {close[0]}?" if close else "")
    return f"{key}: {problem['msg'][0].lower()}{problem['msg'][1:]} (got {_shown(value)})"


def _shown(value: Any) -> str:
    """Short, however large: a few lines of YAML can stand for gigabytes."""
    shortened = reprlib.Repr()
    shortened.maxlevel, shortened.maxstring = 2, 80
    return shortened.repr(value)


def _dotted(location: tuple[Any, ...]) -> str:
    parts = [str(part) for part in location if part not in ("str", "Bilingual")]  # a text in one or two languages
    if parts and parts[0] == "run":
        parts = parts[1:]
    # Inside a tagged choice pydantic names the tag too: model.gpt.attention.query.moves.every.steps
    if len(parts) > 1 and parts[0] == "model" and parts[1] in DEFAULT_ARMS:
        del parts[1]
    if "moves" in parts and len(parts) > parts.index("moves") + 2:
        del parts[parts.index("moves") + 1]
    return ".".join(parts)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
