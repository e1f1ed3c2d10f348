"""Every setting with its type, bounds, default and meaning, read off the models of config.py.

There is no second list: a field that is added there is shown here.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from oelm.core.config import PRESETS, Settings, kind_of_model
from oelm.core.parts import Part
from oelm.core.sections import RETIRED
from oelm.core.settings import DEFAULT_PRESET, KINDS, SCHEDULES, models_of, preset_named
from oelm.machine.errors import UserError

TYPES = {"integer": "whole number", "number": "number", "boolean": "true or false", "string": "text", "array": "list"}
BOUNDS = {
    ("minimum", "ge"): "at least {}", ("exclusiveMinimum", "gt"): "above {}",
    ("maximum", "le"): "at most {}", ("exclusiveMaximum", "lt"): "below {}",
}  # fmt: skip
REQUIRED = "(must be given)"


@dataclass(frozen=True)
class Key:
    key: str
    type: str
    choices: tuple[str, ...]  # empty: any of its type
    bounds: tuple[str, ...]
    may_be_null: bool
    default: Any
    meaning: str
    model: str | None = None  # gpt or encoder, where a key is one's alone or differs between the two

    @property
    def lines(self) -> list[str]:
        """For a terminal: what it is, what it means."""
        default = self.default if self.default == REQUIRED else json.dumps(self.default, ensure_ascii=False)
        kind = " | ".join(self.choices) or " ".join([self.type, " and ".join(self.bounds)]).strip()
        kind += ", or null" * self.may_be_null
        of = f"  [{self.model}]" if self.model else ""
        return [f"{self.key} = {default}  ({kind}){of}", f"    {self.meaning}"]

    def as_json(self) -> dict[str, Any]:
        required = self.default == REQUIRED
        return asdict(self) | {"default": None if required else self.default, "required": required}


PRESET = Key(
    "preset", "text", tuple(PRESETS), (), False, None,
    f"The values that a config file changes. Chosen with --preset, not with --set; {DEFAULT_PRESET} without a file.",
)  # fmt: skip


def keys(prefix: str | None = None, *, preset: str | None = None) -> list[Key]:
    """All of them, or those that begin with a prefix, lie in a section, or end in a name; defaults as a preset has
    them."""
    every = [PRESET, *all_keys(preset)]
    if not prefix:
        return every
    found = [each for each in every if f".{prefix}." in f".{each.key}."]
    found = found or [each for each in every if f".{prefix}" in f".{each.key}"]
    if found:
        return found
    names = {part for each in every for part in (each.key, *each.key.split("."))}
    close = difflib.get_close_matches(prefix, sorted(names), n=1)
    advice = f"did you mean {close[0]}?" if close else "`oelm keys` lists them all"
    raise UserError(f"keys {prefix}: no setting begins with that; {advice}")


def all_keys(preset: str | None = None) -> list[Key]:
    """In the order of the definition. A key that both kinds of model have in the same way stands there once; of a
    preset there is one kind alone."""
    settings = Settings() if preset is None else Settings(run=preset_named(preset))
    kinds = KINDS if preset is None else [kind_of_model(settings.run.model)]
    by_kind = {kind: list(_keys_of(Settings, settings, "", kind)) for kind in kinds}
    shared = set.intersection(*(set(map(_identity, found)) for found in by_kind.values()))
    merged: dict[tuple[Any, ...], Key] = {}
    for kind, found in by_kind.items():
        for each in found:
            alone = _identity(each) not in shared
            key = Key(**vars(each) | {"model": kind if alone else None})
            merged.setdefault((*_identity(key), key.model), key)
    return list(merged.values())


def _identity(key: Key) -> tuple[Any, ...]:
    return key.key, key.choices, key.bounds, str(key.default), key.meaning


def _keys_of(model: type[BaseModel], default: BaseModel | None, prefix: str, kind: str) -> Iterator[Key]:
    for name, field in model.model_fields.items():
        if field.json_schema_extra == RETIRED:
            continue
        path = prefix if (model is Settings and name == "run") else f"{prefix}{name}"
        value = getattr(default, name, None) if default is not None else field.default
        inner = models_of(field.annotation, kind)
        if inner:
            started = value if isinstance(value, inner[0]) else inner[0]()
            yield from _keys_of(inner[0], started, f"{path}." if path else "", kind)
        elif model is Part and name == "moves":
            yield from _schedule(path, getattr(value, "kind", None))
        else:
            yield _described(path, field, value)


def _schedule(path: str, default_kind: str | None) -> Iterator[Key]:
    """When a part moves: its kinds, then what some of them need."""
    meanings = " ".join(f"{name}: {each.model_fields['kind'].description}" for name, each in SCHEDULES.items())
    yield Key(f"{path}.kind", "text", tuple(SCHEDULES), (), False, default_kind, meanings)
    needed = {name: field for each in SCHEDULES.values() for name, field in each.model_fields.items() if name != "kind"}
    for name, field in needed.items():
        meanings = " ".join(
            f"For kind {kind}: {each.model_fields[name].description}"
            for kind, each in SCHEDULES.items()
            if name in each.model_fields
        )
        described = _described(f"{path}.{name}", field, REQUIRED if field.is_required() else field.default)
        yield Key(**vars(described) | {"meaning": meanings})


def _described(path: str, field: FieldInfo, default: Any) -> Key:
    schema = TypeAdapter(field.rebuild_annotation()).json_schema()
    parts = schema.get("anyOf", [schema])
    main = parts[0]
    bounds = tuple(
        text.format(f"{main[name]:g}" if isinstance(main[name], float) else main[name])
        for names, text in BOUNDS.items()
        for name in names
        if name in main
    )
    said = main.get("items", main)  # of a list: what each of it may be
    choices = tuple(said.get("enum", [said["const"]] if "const" in said else []))
    return Key(path, TYPES[main["type"]], choices, bounds, len(parts) > 1, default, field.description or "")
