"""An arm applied to a given model; what was applied is written into its config, and checked when it is loaded.

from_pretrained makes every weight require a gradient and knows nothing of rules: `load` marks and freezes again.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import nn

from oelm.core.arms import Treatment, canonical_name
from oelm.core.arms import arm as named_arm
from oelm.core.config import parts_of_attention
from oelm.core.options import in_use
from oelm.core.parts import Parts, for_given_weights
from oelm.machine.errors import UserError
from oelm.models.adaptation import Adaptation, adapt
from oelm.models.adaptation.adapting import (
    CUSTOM,
    FIELD,
    FORMAT_VERSION,
    adaptation_record,
    frozen_digests,
    frozen_shapes,
)
from oelm.models.encoder_folder import WEIGHTS_INDEX, shards
from oelm.models.model_folder import ARCHITECTURE, MODEL_TYPE
from oelm.storage.files import read_object

CONFIG_FILE = "config.json"


def apply(model: nn.Module, arm: str | Parts | Treatment, *, seed: int = 0) -> Adaptation:
    """Start and freeze the parts of a model of the transformers library as an arm says, in place.

    Only queries and keys are started anew; every other part keeps the given weights. `model.config.oelm` says what was
    done, so that save_pretrained stores it and `oelm.load` restores it. What moves by a schedule needs
    oelm.FreezeCallback in the Trainer, of which a warning reminds. A second arm on the same model is refused.
    """
    if not isinstance(arm, str | Parts | Treatment):
        raise UserError(f"arm: {arm!r} is neither the name of an arm nor Parts nor a Treatment")
    if not isinstance(seed, int) or seed < 0:
        raise UserError(f"seed: {seed!r} is not a whole number of 0 or more")
    parts = for_given_weights(_parts_of(arm))
    done = adapt(model, parts, seed=seed)
    name = canonical_name(arm) if isinstance(arm, str) else CUSTOM
    config: Any = model.config
    config.oelm = adaptation_record(model, parts, arm=name, seed=seed)
    _warn_of_a_schedule(done)
    return done


def _parts_of(arm: str | Parts | Treatment) -> Parts:
    """What an arm says of parts; what it says besides needs another forward pass, and is refused by name."""
    if isinstance(arm, Parts):
        return arm
    treatment = named_arm(arm) if isinstance(arm, str) else arm
    options = [option.said(facts) for option, facts in in_use(treatment)]
    if options:
        name = arm if isinstance(arm, str) else CUSTOM
        raise UserError(f"arm: {name}: only oelm's own GPT can have {'; '.join(options)}")
    return treatment.parts


def load(folder: str | Path, cls: Any = None, **kwargs: Any) -> nn.Module:
    """A model that `apply` changed and save_pretrained stored: read, marked and frozen again, frozen weights checked.

    `cls` is the class or Auto class whose from_pretrained reads it (by default the one that was stored); other
    arguments go to it, except `dtype`, to which the model is cast after the check.
    """
    folder = Path(folder)
    tree = _config_tree(folder)
    if tree.get("model_type") == MODEL_TYPE:
        from oelm.models import gpt  # whose classes freeze and check by themselves

        names = tree.get("architectures") or [ARCHITECTURE]
        try:
            own: nn.Module = (cls or getattr(gpt, names[0])).from_pretrained(folder, **kwargs)
        except SafetensorError as error:
            raise UserError(f"{folder}: its weights cannot be read: {error}; export the model again") from error
        return own
    parts, seed = _stored_spec(folder, tree)
    reader = cls or _stored_class(folder, tree)
    dtype = kwargs.pop("dtype", "auto")
    try:
        model: nn.Module = reader.from_pretrained(folder, **kwargs, dtype="auto", use_safetensors=True)
    except SafetensorError as error:
        raise UserError(f"{folder}: its weights cannot be read: {error}; store the model again") from error
    as_stored = {role: part.model_copy(update={"start": "keep", "gain": 1.0}) for role, part in parts.items()}
    done = adapt(model, Parts(**as_stored), seed=seed)
    config: Any = model.config
    config.oelm = tree[FIELD]  # whatever config was given
    changed = changed_since_applied(model)
    if changed:
        raise UserError(f"{folder}: {changed}")
    if dtype != "auto":
        model.to(dtype)
        config.oelm = tree[FIELD] | {"frozen_digests": frozen_digests(model)}
    _warn_of_a_schedule(done)
    return model


def _warn_of_a_schedule(done: Adaptation) -> None:
    if done.follows_a_schedule:
        warnings.warn(
            "weights of this model follow a schedule; without oelm.FreezeCallback() in the Trainer's callbacks they "
            "are trained at every update",
            stacklevel=3,
        )


# ---- Digests -------------------------------------------------------------------------------------------------------


def changed_since_applied(model: nn.Module) -> str:
    """Which frozen weights have not the shapes or digests that were taken when the arm was applied; else empty."""
    record, shapes = getattr(model.config, FIELD), frozen_shapes(model)
    stored_shapes = record.get("frozen_shapes", {})  # which earlier versions did not store
    resized = [name for name in shapes if stored_shapes.get(name, shapes[name]) != shapes[name]]
    if resized:
        first = resized[0]
        return (
            f"{first} was resized after the arm was applied (was {stored_shapes[first]}, is {shapes[first]}): "
            "resize_token_embeddings comes first; load the model again, resize it, then apply the arm"
        )
    stored, found = record["frozen_digests"], frozen_digests(model)
    changed = [name for name in sorted(stored.keys() | found.keys()) if stored.get(name) != found.get(name)]
    if not changed:
        return ""
    return f"frozen weights are not what they were when the arm was applied: {', '.join(changed)} (digest differs)"


# ---- What a folder says --------------------------------------------------------------------------------------------


def _config_tree(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give one that save_pretrained wrote")
    if not (folder / CONFIG_FILE).exists():
        raise UserError(f"{folder}: has no {CONFIG_FILE}; give a folder that save_pretrained wrote")
    tree = read_object(folder / CONFIG_FILE)
    if FIELD not in tree and tree.get("model_type") != MODEL_TYPE:
        raise UserError(
            f"{folder}: its {CONFIG_FILE} has no field {FIELD}: no arm was applied; use from_pretrained and oelm.apply"
        )
    if not any(folder.glob("*.safetensors")):
        pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
        held = f"only pickled weights ({', '.join(pickled)}), which oelm does not read" if pickled else "no weights"
        raise UserError(f"{folder}: contains {held}; store them again with save_pretrained, which writes safetensors")
    if (folder / WEIGHTS_INDEX).exists():
        shards(folder / WEIGHTS_INDEX)  # refuses one that names a file of another folder
    return tree


def _stored_spec(folder: Path, tree: dict[str, Any]) -> tuple[Parts, int]:
    where = f"{folder / CONFIG_FILE}: {FIELD}"
    field = tree[FIELD]
    if not isinstance(field, dict) or field.get("format_version") not in (1, FORMAT_VERSION):
        raise UserError(f"{where}: not format_version 1 or {FORMAT_VERSION}, which this version of oelm reads")
    try:
        dict(field["frozen_digests"])
        stored = field["parts"] if "parts" in field else parts_of_attention(field["attention"], "encoder")
        return Parts.model_validate(stored), int(field["seed"])
    except (KeyError, TypeError, ValueError) as error:  # pydantic's is a ValueError
        raise UserError(f"{where}: damaged: {str(error).splitlines()[0]}; store the model again") from error


def _stored_class(folder: Path, tree: dict[str, Any]) -> Any:
    from oelm.models.library import transformers

    names = tree.get("architectures")
    is_named = isinstance(names, list) and names and isinstance(names[0], str)
    found = getattr(transformers, names[0], None) if is_named and names else None
    if found is None:
        raise UserError(f"{folder / CONFIG_FILE}: architectures {names} names no class of transformers; pass cls")
    return found
