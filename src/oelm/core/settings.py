"""From a preset or a YAML file, an arm and --set pairs to validated settings, before torch is imported.

Every problem becomes one line with its dotted key and, where there is one, a suggestion.
"""

from __future__ import annotations

import copy
import difflib
import math
import re
import reprlib
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import yaml
from pydantic import BaseModel, Tag, ValidationError

from oelm.core.arms import ARMS, PRETRAINED_ARMS, canonical_name
from oelm.core.arms import arm as arm_named
from oelm.core.config import (
    FORMAT_VERSION,
    OLDER_TRACKER,
    PRESETS,
    Encoder,
    Model,
    ResolvedRun,
    Run,
    Seeds,
    Settings,
    Unresolved,
    as_far_as_known,
    counted_in_attention,
    from_version_2,
    kind_of_model,
    resolved,
)
from oelm.core.parts import Part
from oelm.core.sections import KEYED_TAG, MOST_DIGITS, TOO_LONG, VALUE_TAG
from oelm.machine.errors import UserError, did_you_mean
from oelm.storage.files import Damaged

DEFAULT_PRESET = "tiny"
DEFAULT_ARMS = {"gpt": "trained", "encoder": "fine_tuned"}  # by the kind of model

# ---- YAML whose numbers are numbers --------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """YAML 1.2's scalars: 3e-4 is a number, and only true and false are booleans. A repeated key is an error."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the name and type PyYAML looks for

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise UserError(f"{_place(key_node)}: the key {key!r} is not a word")
            if key in seen:
                raise UserError(f"{_place(key_node)}: the key {key!r} occurs twice")
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        value = super().construct_scalar(node)
        if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
            raise UserError(f"{_place(node)}: contains half a character, which no file can store")
        return value


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


# What YAML says of a text with a mark in it that means something to YAML.
UNQUOTED = re.compile(r"but (?:got|found) '[^<]|but found '<scalar>'|not allowed here|cannot start any token")
NEEDS_QUOTES = "; a text that contains `: `, or `?`, `,`, `[` or `{` inside braces, needs quotes"


def read_yaml(text: str, *, name: str) -> Any:
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if _values(node, {}) > MOST_VALUES:
            raise UserError(f"contains more than {MOST_VALUES:,} values, or one that contains itself")
        return None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        where = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        hint = NEEDS_QUOTES if UNQUOTED.search(str(error.problem)) else ""
        raise UserError(f"{name}:{where} is not YAML: {error.problem}{hint}") from error
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


KINDS: dict[str, type[BaseModel]] = {"gpt": Model, "encoder": Encoder}


def models_of(annotation: Any, kind: str | None = None) -> list[type[BaseModel]]:
    """The kinds of section a key may hold, one unless it is a choice: the two kinds of model."""
    if annotation == Run.model_fields["model"].annotation:
        return list(KINDS.values()) if kind is None else [KINDS[kind]]
    return [annotation] if isinstance(annotation, type) and issubclass(annotation, BaseModel) else []


def known_keys(model: type[BaseModel] = Settings, prefix: str = "", *, kind: str | None = None) -> list[str]:
    """Every dotted key a config file may hold, or one with this kind of model. A file writes model.d_model, without
    `run.` before it."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        path = prefix if (model is Settings and name == "run") else f"{prefix}{name}"
        inner = models_of(field.annotation, kind)
        keys.extend(key for each in inner for key in known_keys(each, f"{path}." if path else "", kind=kind))
        if not inner:
            keys.append(path)
    return list(dict.fromkeys(keys))


TOP_KEYS = (*Run.model_fields, "execution", "preset")  # of a config file
# When a part moves: each kind of schedule, and the keys that one or another of them takes.
SCHEDULES = {each.model_fields["kind"].default: each for each in get_args(Part.model_fields["moves"].annotation)}
SCHEDULE_KEYS = tuple(dict.fromkeys(key for each in SCHEDULES.values() for key in each.model_fields))


def full_key(key: str) -> str:
    """The dotted key meant by `key`: itself, or the only key that ends in it."""
    key = re.sub(rf"^(model\.)?{OLDER_KEY}\.", rf"\g<1>{PARTS_KEY}.", key)
    if key in (OLDER_TRACKER, f"execution.{OLDER_TRACKER}"):
        return f"execution.{OLDER_TRACKER}"
    keys = known_keys()
    of_schedules = [f"{known}.{part}" for known in keys if known.endswith(".moves") for part in SCHEDULE_KEYS]
    if key in keys or key in of_schedules:
        return key
    in_a_schedule = "moves" in key.split(".")
    ending = f".{key}.kind" if key.endswith("moves") else f".{key}"
    endings = [known for known in (of_schedules if in_a_schedule else keys) if known.endswith(ending)]
    if len(endings) == 1:
        return endings[0]
    if endings:
        raise UserError(f"--set {key}: could be {_first_of(endings)}; write it in full")
    section = _section(key)
    if section is not None:
        inner = [known for known in keys if known.startswith(f"{section}.")]
        raise UserError(f"--set {key}: is a section; give keys and values, or one of {_first_of(inner)}")
    short = [known.rpartition(".")[2] for known in keys]
    accepted = [each for each in (*keys, *(name for name in short if short.count(name) == 1)) if each != "arm"]
    head, _, tail = key.rpartition(".")
    if in_a_schedule:
        where = head if head in keys else "model.parts.query.moves"
        close = [f"{where}.{part}" for part in difflib.get_close_matches(tail, SCHEDULE_KEYS, n=1)]
    else:
        beside = [known for known in keys if head and known.startswith(f"{head}.")]
        names = {known.removeprefix(f"{head}."): known for known in beside} or {each: each for each in accepted}
        close = [names[each] for each in difflib.get_close_matches(tail if beside else key, names, n=1)]
    advice = f"did you mean {close[0]}?" if close else "`oelm keys` lists them"
    raise UserError(f"--set {key}: unknown key; {advice}")


def _section(key: str) -> str | None:
    """The section that is meant by `key`, where it is none of the keys."""
    return next((known[: at + len(key)] for known in known_keys() for at in _parts_at(known, key)), None)


def single_settings(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """By full keys: that of a value, or of everything in a section."""
    keys = known_keys()
    section = _section(key) if isinstance(value, dict) and value and key not in keys else None
    if section is None or (section in keys and not section.endswith(".moves")):
        yield full_key(key), value
    else:
        for name, inner in value.items():
            yield from single_settings(f"{section}.{name}", inner)


def _first_of(keys: list[str], most: int = 4) -> str:
    more = f" and {len(keys) - most} more" if len(keys) > most else ""
    return ", ".join(keys[:most]) + more


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
    values = dict(single for text in assignments for single in _assignment(text))
    name = source or f"preset {preset or DEFAULT_PRESET}"
    try:
        return settings_of(tree, name=name, arm=arm, seed=seed, values=values)
    except UserError as error:
        without: list[str] = []  # what is wrong with the file or preset by itself: of all else, --set is the cause
        try:
            settings_of(tree, name=name, arm=arm, seed=seed)
        except UserError as by_itself:
            without = str(by_itself).splitlines()
        lines = (
            line if line in without or not line.startswith(f"{name}: ") else f"--set {line.removeprefix(f'{name}: ')}"
            for line in str(error).splitlines()
        )
        raise UserError("\n".join(lines)) from error


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
        if not 0 <= seed < 10**MOST_DIGITS:
            raise UserError(f"--seed {_shown(seed)}: {'at least 0' if seed < 0 else TOO_LONG}")
        tree["seeds"] = {"weights": seed, "projections": seed, "data": seed}
    values = values or {}
    if "model.kind" in values:  # which decides what an arm means
        _assign(tree, "model.kind", values["model.kind"])
    tree = _with_arm(_with_parts(tree, name=name))
    for key, value in values.items():
        _assign(tree, key, value)
    settings = validated(tree, name=name)
    return settings.model_copy(update={"run": _labelled(settings.run)})


def validated(tree: dict[str, Any], *, name: str) -> Settings:
    run_tree = {key: value for key, value in tree.items() if key != "execution"}
    shaped = {"run": run_tree, "execution": tree.get("execution", {})}
    try:
        return Settings.model_validate(shaped)
    except ValidationError as error:
        known = known_keys(kind=kind_of_model(tree.get("model")))
        raise UserError("\n".join(f"{name}: {line}" for line in problem_lines(error, known=known))) from error


def written_out(settings: Settings) -> dict[str, Any]:
    """Settings as a config file that gives them back. A spec without a name of its own is written without one."""
    tree = {**settings.run.model_dump(mode="json"), "execution": settings.execution.model_dump(mode="json")}
    tree["training"]["head_scores"] = settings.run.training.head_scores  # which no other dump has
    return tree if settings.run.arm in ARMS else {key: value for key, value in tree.items() if key != "arm"}


def stored_run(tree: Any, *, name: str) -> ResolvedRun:
    """A run from the config.json of a run directory."""
    file = Path(name)
    if not isinstance(tree, dict) or "format_version" not in tree:
        if isinstance(tree, dict) and "model_type" in tree:
            raise UserError(
                f"{file.parent}: a {tree['model_type']} model of transformers, not a run or model of oelm; in Python, "
                "oelm.diagnose(model) examines any torch module"
            )
        raise Damaged(file, "not a run's config (no format_version)")
    tree = dict(tree)
    version = tree.pop("format_version")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise UserError(
            f"{name}: has format version {version}, this oelm reads up to {FORMAT_VERSION}; use a newer oelm"
        )
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise Damaged(file, f"has format version {_shown(version)}")
    if version not in (2, FORMAT_VERSION):
        raise UserError(f"{name}: has format version {version}, this oelm reads 2 and {FORMAT_VERSION}; use oelm 0.5")
    try:
        tree = from_version_2(tree) if version == 2 else tree
    except (KeyError, TypeError) as error:
        raise Damaged(file, f"not a whole config of format version {version} (at {error})") from error
    try:
        return resolved(validated(tree, name=name).run)
    except Unresolved as error:
        raise Damaged(file, f"{', '.join(error.keys)}: no value") from error
    except UserError as error:
        lines = [line.removeprefix(f"{name}: ") for line in str(error).splitlines()]
        raise Damaged(file, "; ".join(lines)) from error


def file_tree(path: Path) -> dict[str, Any]:
    """The keys of a config file, with its preset put below them."""
    if path.is_dir():
        raise UserError(f"{path}: is a folder, not a config file; data is given with --data, a run with --out")
    if not path.is_file():
        known = ", ".join(PRESETS)
        raise UserError(f"{path}: no such config file (for a preset use --preset: {known})")
    tree = read_yaml_file(path)
    if tree is None:
        raise UserError(f"{path}: is empty; a config contains at least one of: {', '.join(TOP_KEYS)}")
    if not isinstance(tree, dict):
        raise UserError(f"{path}: contains a {type(tree).__name__}, not keys and values")
    return with_preset(tree)


def with_preset(tree: dict[str, Any]) -> dict[str, Any]:
    """The preset a tree names, below its own keys."""
    own = {key: value for key, value in tree.items() if key != "preset"}
    return _merged(_preset_tree(str(tree["preset"])), own) if "preset" in tree else own


NOT_OF_A_PRESET = {"parts", "scores", "repairs", "positions", "tied"}  # a preset is sizes and training


def _preset_tree(preset: str) -> dict[str, Any]:
    return preset_named(preset).model_dump(mode="json", exclude={"arm": True, "model": NOT_OF_A_PRESET})


def preset_named(preset: str) -> Run:
    if preset not in PRESETS:
        raise UserError(f"preset: unknown name {preset!r}{did_you_mean(preset, PRESETS)} (known: {', '.join(PRESETS)})")
    return PRESETS[preset]


def _with_arm(tree: dict[str, Any]) -> dict[str, Any]:
    """An arm's name is replaced by what it decides; what the file writes out of the same keys goes on top of it."""
    model = tree.get("model", {})
    if not isinstance(model, dict):
        return tree  # validation names the problem
    name = tree.get("arm", DEFAULT_ARMS[kind_of_model(model)])
    if not isinstance(name, str):
        return tree
    if kind_of_model(model) == "gpt" and canonical_name(name) in PRETRAINED_ARMS:
        raise UserError(f"arm: {name} is for models that come with weights: an encoder, as in preset fine-tuning")
    decided = arm_named(name, kind=kind_of_model(model)).own_settings
    return {**tree, "arm": canonical_name(name), "model": _merged(decided, model)}


OLDER_KEY, PARTS_KEY = "attention", "parts"  # of a model, before every part of it could be spoken of


def _with_parts(tree: dict[str, Any], *, name: str) -> dict[str, Any]:
    """A file that still says model.attention: it means these parts."""
    model = tree.get("model")
    if not isinstance(model, dict) or not isinstance(model.get(OLDER_KEY), dict):
        return tree
    others = {key: value for key, value in model.items() if key != OLDER_KEY}
    written_out = others.get(PARTS_KEY, {})
    for role in model[OLDER_KEY]:
        if isinstance(written_out, dict) and role in written_out:
            raise UserError(f"{name}: model.{OLDER_KEY}.{role}: is also under model.{PARTS_KEY}; write it there alone")
    older = counted_in_attention(model[OLDER_KEY], kind_of_model(model))
    parts = _merged(older, written_out) if isinstance(written_out, dict) else written_out
    return {**tree, "model": others | {PARTS_KEY: parts}}


def _labelled(run: Run) -> Run:
    """A name stands for its treatment: a run in which something that the arm decides was changed is called custom.

    What the arm leaves to a rule may be written out with the value that the rule gives.
    """
    treatment = arm_named(run.arm, kind=kind_of_model(run.model))
    if isinstance(run.model, Model):
        treatment = treatment.resolved(d_model=run.model.d_model)
    model = as_far_as_known(run).model.model_dump(mode="json")
    return run if _merged(model, treatment.own_settings) == model else run.model_copy(update={"arm": "custom"})


# What is chosen by an option of its own and not with --set, and what that option takes.
OWN_OPTIONS = {"seed": "N", "preset": "NAME", "arm": "NAME", "out": "FOLDER", "name": "NAME"}


def _assignment(text: str) -> Iterator[tuple[str, Any]]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UserError(f"--set {text}: write key=value, for example --set training.learning_rate=3e-4")
    if key == "arm":
        raise UserError("--set arm: an arm is chosen with --arm NAME, or with arm: NAME in the config file")
    option = key.strip().rpartition(".")[2]
    if option in OWN_OPTIONS:
        given = value if value and (option != "seed" or value.isdigit()) else OWN_OPTIONS[option]
        raise UserError(f"--set {key}: has its own option: --{option} {given}")
    return single_settings(key.strip(), read_yaml(value, name=f"--set {key}"))


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


# ---- Problems, one line each ---------------------------------------------------------------------------------------


def problem_lines(
    error: ValidationError,
    *,
    model: type[BaseModel] = Settings,
    known: list[str] | None = None,
    tree: dict[str, Any] | None = None,
) -> list[str]:
    """One line a problem. `model` is what was validated; for the suggestions `known` has every dotted key it takes, and
    `tree`, where a key may depend on others, what was given."""
    known = known_keys(model) if known is None else known
    problems = error.errors()
    bilingual = {each["loc"][: each["loc"].index("Bilingual")] for each in problems if "Bilingual" in each["loc"]}
    # Of a text in one language or two pydantic says what is wrong with it as either: once is enough.
    meant = [each for each in problems if each["loc"][-1:] != ("str",) or each["loc"][:-1] not in bilingual]
    lines: list[str] = []
    for problem in meant:
        if problem["type"] != "value_error":
            lines.append(_problem_line(problem, model, known, tree))
            continue
        key = _dotted(problem["loc"])
        for line in str(problem["ctx"]["error"]).splitlines():
            # A line about a section; where it begins with a key of that section, that key in full.
            begins_with_a_key = line.split(":")[0].split(".")[0] in NOT_OF_A_PRESET
            lines.append(f"{key}{'.' if begins_with_a_key else ': '}{line}" if key else line)
    return lines


def _problem_line(problem: Any, model: type[BaseModel], known: list[str], tree: dict[str, Any] | None) -> str:
    key = _dotted(problem["loc"])
    value, kind = problem.get("input"), problem["type"]
    if kind == "extra_forbidden":
        return f"{key}: {_about_unknown(problem['loc'], model, known, tree)}"
    if kind == "missing":
        return f"{key}: is missing"
    if isinstance(value, str) and kind in ("float_type", "int_type") and _is_number(value):
        finite = math.isfinite(float(value))
        advice = f"is a quoted number; write it without quotes: {value}" if finite else "is not a finite number"
        return f"{key}: {_shown(value)} {advice}"
    if kind in ("literal_error", "union_tag_invalid"):
        expected = problem["ctx"].get("expected") or problem["ctx"]["expected_tags"]
        if kind == "union_tag_invalid":
            key, value = f"{key}.kind", problem["ctx"]["tag"]
        names = re.findall(r"'([^']*)'", expected)
        if page := problem["ctx"].get("listed_in"):
            close = difflib.get_close_matches(str(value), names, n=1)
            meant = f"did you mean {close[0]}? " if close else f"for example {', '.join(names[:MOST_SUGGESTIONS])} "
            return f"{key}: {_shown(value)} is unknown; {meant}({page} lists all {len(names)})"
        return f"{key}: {_shown(value)} is not one of {expected}{did_you_mean(value, names)}"
    if kind in ("model_type", "model_attributes_type"):
        return f"{key}: {_about_section(problem['loc'], model)} (got {_shown(value)})"
    message = problem["msg"]
    ours = IN_OUR_WORDS[kind].format(**problem.get("ctx", {})) if kind in IN_OUR_WORDS else None
    return f"{key}: {ours or message[0].lower() + message[1:]} (got {_shown(value)})"


# What pydantic calls a problem -> what we say of it. The rest is passed on in its words.
IN_OUR_WORDS = {
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "finite_number": "must be a finite number",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "list_type": "must be a list",
    "tuple_type": "must be a list; [] for none",
    "dict_type": "must be keys and values",
    "too_short": "needs at least {min_length}, has {actual_length}",
    "union_tag_not_found": "needs kind",
}


def _about_section(location: tuple[Any, ...], model: type[BaseModel]) -> str:
    """What may stand where something else stood than keys and values."""
    found = _models_at(model, location)
    if not found:
        return IN_OUR_WORDS["dict_type"]
    (section,) = found
    if section is Seeds:
        return f"takes {SEEDS}"
    *names, last = section.model_fields
    either = "is a text, or takes " if "Bilingual" in location else "takes "
    return either + (f"{', '.join(names)} and {last}" if names else last)


SEEDS = "weights, projections and data; `oelm train --seed N` sets all three"
MOST_SUGGESTIONS = 3


def _about_unknown(
    location: tuple[Any, ...], model: type[BaseModel], known: list[str], tree: dict[str, Any] | None
) -> str:
    """A suggestion is a key that would be taken: the same name elsewhere, or one alike, in this section first."""
    key = _dotted(location)
    section, _, name = key.rpartition(".")
    sections = _models_at(model, location[:-1])
    if instead := next((gone[name] for each in sections if name in (gone := getattr(each, "gone", {}))), None):
        return f"no longer a key; {instead}"
    neighbours = [field for each in sections for field in each.model_fields]
    if model is Settings and not section:
        neighbours = list(TOP_KEYS)
    refused = _refused(location, model, neighbours, tree) if tree is not None else []
    here = {field: f"{section}.{field}" if section else field for field in neighbours if field not in refused}
    if model is Settings and name == "seed":
        return f"unknown key; did you mean seeds? It takes {SEEDS}"
    kinds = [kind for kind, each in SCHEDULES.items() if name in each.model_fields] if "moves" in location else []
    if kinds:
        return f"is only valid with kind {' or '.join(kinds)}"
    if model is Settings and key in known_keys():  # of the other kind of model
        return "unknown key: only an encoder has it (preset fine-tuning)"
    elsewhere = [] if "moves" in location else [each for each in _places_of(name, known) if each != key]
    if not elsewhere:
        elsewhere = [here[field] for field in here if difflib.get_close_matches(name, field.split("_"), cutoff=0.9)]
    if not elsewhere:
        elsewhere = [here[close] for close in difflib.get_close_matches(name, here, n=1)]
    if not elsewhere and "moves" not in location:
        parts = dict.fromkeys(part for each in known for part in each.split("."))
        for close in difflib.get_close_matches(name, parts, n=1, cutoff=0.75):
            elsewhere = [each for each in _places_of(close, known) if each != key]
    if 0 < len(elsewhere) <= MOST_SUGGESTIONS:
        return f"unknown key; did you mean {' or '.join(elsewhere)}?"
    return f"unknown key; {section or 'the file'} takes {', '.join(neighbours)}" if neighbours else "unknown key"


def _refused(
    location: tuple[Any, ...], model: type[BaseModel], neighbours: list[str], tree: dict[str, Any]
) -> list[str]:
    """Those that this section could not have in the place of an unknown key, for what else is in it."""
    found = []
    for field in neighbours:
        changed = copy.deepcopy(tree)
        section: Any = changed
        for step in location[:-1]:
            if not isinstance(section, dict | list) or (isinstance(section, dict) and step not in section):
                return []  # pydantic also names which of several types it tried
            section = section[step]
        section.setdefault(field, section.pop(location[-1]))
        try:
            model.model_validate(changed)
        except ValidationError as error:
            for each in error.errors():
                if each["loc"] == location[:-1] and re.search(rf"\b{field}\b", str(each.get("ctx", {}).get("error"))):
                    found.append(field)
    return found


def _places_of(name: str, known: list[str]) -> list[str]:
    """The dotted keys and sections that are called so."""
    return list(dict.fromkeys(each[: at + len(name)] for each in known for at in _parts_at(each, name)))


def _parts_at(key: str, name: str) -> list[int]:
    """Where a name stands as a whole part of a dotted key."""
    return [found.start(1) for found in re.finditer(rf"(?:^|\.)({re.escape(name)})(?=\.|$)", key)]


def _models_at(annotation: Any, location: tuple[Any, ...]) -> list[type[BaseModel]]:
    """What is validated at a place that pydantic names: of a choice, the chosen one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if not location:
            return [annotation]
        field = annotation.model_fields.get(location[0])
        return [] if field is None else _models_at(field.annotation, location[1:])
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _models_at(arguments[0], location)
    if origin in (list, dict):
        return _models_at(arguments[-1], location[1:])
    for each in arguments:  # of a choice
        if location and location[0] in _names_of(each):
            return _models_at(each, location[1:])
    return []


def _names_of(choice: Any) -> set[str]:
    """What pydantic may call one of several."""
    model, *notes = get_args(choice) if get_origin(choice) is Annotated else (choice,)
    kind = getattr(model, "model_fields", {}).get("kind")
    tags = {note.tag for note in notes if isinstance(note, Tag)}
    return tags | {getattr(model, "__name__", "")} | ({kind.default} if kind else set())


def _shown(value: Any) -> str:
    """Short, however large: a few lines of YAML can stand for gigabytes."""
    shortened = reprlib.Repr()
    shortened.maxlevel, shortened.maxstring = 2, 80
    return shortened.repr(value)


def _dotted(location: tuple[Any, ...]) -> str:
    of_types = ("str", "Bilingual", KEYED_TAG, VALUE_TAG)  # a text in one or two languages; settings or a value
    parts = [str(part) for part in location if part not in of_types]
    if parts and parts[0] == "run":
        parts = parts[1:]
    # Inside a tagged choice pydantic names the tag too: model.gpt.parts.query.moves.every.steps
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
