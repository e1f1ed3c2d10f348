"""A run's model as a folder that transformers loads: in our own form, or as a stock GPT-2.

Our form is what best/ holds, with a model card and our classes as a file of source: it keeps what is frozen frozen, and
loads after `import oelm`, or without oelm by trust_remote_code. The GPT-2 form needs nothing of ours. Either is written
whole or not at all, and needs no transformers to be written.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from safetensors import safe_open

import oelm
from oelm.core.arm_words import described
from oelm.core.config import fingerprint
from oelm.core.model.parameters import counts_by_part, summed, weights_digest
from oelm.core.model.projection import matrices_of
from oelm.core.probes.probe import is_probe
from oelm.core.settings import stored_run
from oelm.data.prepared import digest_here, name_here
from oelm.machine.errors import UserError
from oelm.machine.visible import visible
from oelm.models.gpt2 import gpt2_config, gpt2_weights, is_plain, what_no_gpt2_has
from oelm.models.model_folder import describe_model, model_config
from oelm.models.standalone import AUTO_MAP, modeling_file
from oelm.models.standalone import FILE as MODELING_FILE
from oelm.run.directory import RunDirectory, checkpoint_step, is_checkpoint, run_around
from oelm.run.sealing import end_of
from oelm.run.stored_models.loading import StoredModel, load_stored
from oelm.run.training.checkpoint import MODEL_FILE, contiguous, stored_bytes, write_tensors
from oelm.storage.files import ensure_writable, explaining_a_full_disk, read_json, read_object, write_bytes, write_json
from oelm.storage.schemas import Environment, read_record
from oelm.storage.whole_folder import partial_folder, publish_folder

FORMS = ("auto", "oelm", "gpt2")
MARK = "oelm_export.json"  # what makes a folder ours to replace
CARD = "README.md"


@dataclass(frozen=True)
class Export:
    folder: Path
    form: Literal["oelm", "gpt2"]
    reason: str
    has_tokenizer: bool


def export(
    source: Path | str, to: Path | str, *, form: str = "auto", licence: str | None = None, force: bool = False
) -> Export:
    """Write the best model of a run (or a checkpoint, or a best/ folder) to a new folder."""
    if form not in FORMS:
        raise UserError(f"--as {form}: known forms: {', '.join(FORMS)}")
    source, to = Path(source), Path(to)
    _check_target(to, force=force)
    stored = load_stored(source)
    chosen, reason = _form(stored, form)
    weights = contiguous(stored.gpt.state_dict())
    facts = _facts(stored) | {"form": chosen, "digest": weights_digest(weights)}
    facts |= {} if licence is None else {"licence": licence}
    if chosen == "gpt2":
        config, weights = gpt2_config(stored.model), contiguous(gpt2_weights(matrices_of(stored.gpt), stored.model))
    else:
        config = model_config(stored.model) | {"auto_map": AUTO_MAP, "oelm_version": oelm.__version__}
    # The type of the numbers, and the transformers they are written for, where it is installed.
    dtype = next(str(tensor.dtype) for tensor in weights.values() if tensor.is_floating_point())
    config["dtype"] = dtype.removeprefix("torch.")
    with contextlib.suppress(PackageNotFoundError):
        config["transformers_version"] = version("transformers")
    metadata = {"format": "pt"} | ({"digest": facts["digest"]} if chosen == "oelm" else {})
    ensure_writable(to.parent, option="--to")
    with explaining_a_full_disk(to.parent, needed_bytes=stored_bytes(weights)), partial_folder(to) as folder:
        tokenizer = stored.tokenizer()
        describe_model(folder, config, model=stored.model, tokenizer=tokenizer)
        write_tensors(folder / MODEL_FILE, weights, metadata)
        with open(folder / MODEL_FILE, "rb") as stream:
            os.fsync(stream.fileno())
        if chosen == "oelm":
            write_bytes(folder / MODELING_FILE, modeling_file(oelm.__version__).encode())
        write_bytes(folder / CARD, _card(stored, facts).encode())
        write_json(folder / MARK, facts)
        publish_folder(folder, to)
    return Export(folder=to, form=chosen, reason=reason, has_tokenizer=tokenizer is not None)


def _check_target(to: Path, *, force: bool) -> None:
    if to.is_symlink() or os.path.ismount(to) or (to.exists() and not to.is_dir()):
        raise UserError(f"{to}: is not an ordinary folder; give a new one with --to")
    if not to.exists() or not any(to.iterdir()):
        return
    if not (to / MARK).is_file():
        raise UserError(f"{to}: is not empty and not an oelm export; choose another folder with --to")
    if not force:
        raise UserError(f"{to}: already contains an export; add --force to replace it, or choose another --to")


HOW_TO_LOAD = "import oelm before loading, or pass trust_remote_code=True"


def _form(stored: StoredModel, asked: str) -> tuple[Literal["oelm", "gpt2"], str]:
    plain, rule, own = is_plain(stored.model), described(stored.model), what_no_gpt2_has(stored.model)
    if asked == "gpt2" and own is not None:
        raise UserError(f"--as gpt2: no GPT-2 has what this model has ({own}); use --as oelm")
    match asked, plain:
        case "auto", True:
            return "gpt2", "nothing in this arm is frozen or scheduled, so it is a plain GPT-2: loads without oelm"
        case "auto", False if own is not None:
            return "oelm", f"no GPT-2 has what this model has ({own}): {HOW_TO_LOAD}"
        case "auto", False:
            return "oelm", f"this arm freezes weights ({rule}), which only oelm's own class keeps: {HOW_TO_LOAD}"
        case "oelm", _:
            return "oelm", f"as requested: {HOW_TO_LOAD}"
        case _, True:
            return "gpt2", "as requested: loads without oelm"
    return "gpt2", f"as requested: loads without oelm, and forgets what is frozen ({rule})"


# ---- What is known of the model ------------------------------------------------------------------------------------


def _facts(stored: StoredModel) -> dict[str, Any]:
    """Where the model comes from, as far as its folder says."""
    folder = stored.weights_file.parent
    with safe_open(stored.weights_file, "pt") as file:
        metadata = file.metadata() or {}
    facts = read_object(folder / MARK) if (folder / MARK).exists() else {}  # an export of an export
    facts |= {key: metadata[key] for key in ("arm", "step", "val_loss") if key in metadata}
    directory = run_around(folder)
    if directory is not None and directory.environment_file.exists():
        run = stored_run(read_json(directory.config_file), name=str(directory.config_file))
        environment = read_record(directory.environment_file, Environment)
        data_digest = environment.get("data_digest") or ""
        facts |= {"arm": run.arm, "fingerprint": fingerprint(run, data_digest=data_digest), "data_digest": data_digest}
        # What the data were made of, as the run noted, or where they are still here.
        name: str | None = run.data
        if not is_probe(run.data):
            here = Path(run.data)
            name = environment.get("data_name") or (name_here(here) if digest_here(here) == data_digest else None)
        facts |= {} if name is None else {"data": name}
        if "val_loss" in facts and not _is_said_by(directory, facts["val_loss"]):
            del facts["val_loss"]
        if is_checkpoint(folder):
            facts["step"] = str(checkpoint_step(folder))
    count = summed(counts_by_part(stored.gpt))
    return facts | {"oelm": oelm.__version__, "parameters": count.total, "frozen": count.frozen}


def _is_said_by(directory: RunDirectory, val_loss: str) -> bool:
    """Whether the loss that stands with the weights, which no seal binds, is that of the run; nobody knows before it
    has ended."""
    try:
        ended = end_of(directory)
    except UserError:
        return False
    return ended is None or (ended.result is not None and val_loss == str(ended.result.get("best_val_loss")))


def _card(stored: StoredModel, facts: dict[str, Any]) -> str:
    model = stored.model
    sizes = f"{model.num_layers} layers, width {model.d_model}, {model.num_heads} heads, {model.seq_len} positions"
    licence, data = facts.get("licence"), facts.get("data")
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        f"license: {'unknown' if licence is None else json.dumps(licence)}",
        "tags:",
        *(f"- {tag}" for tag in ("text-generation", "oelm", *(["gpt2"] if facts["form"] == "gpt2" else []))),
        "---",
        "",
        "# A GPT trained with oelm",
        "",
        f"- {sizes}, vocabulary {model.vocabulary:,}",
        f"- {facts['parameters']:,} parameters, of which {facts['frozen']:,} were never trained",
        f"- {described(model)}",
        f"- licence: {'unknown: not stated when the model was exported' if licence is None else _plain(licence)}",
        f"- data: {'unknown: the run does not say what it was trained on' if data is None else _plain(data)}",
    ]
    names = {
        "arm": "arm",
        "step": "training step",
        "val_loss": "validation loss (nats per token, on the sample of the curve)",
        "fingerprint": "fingerprint of the run",
        "data_digest": "digest of the data",
        "oelm": "exported by oelm",
    }
    lines += [f"- {name}: `{_plain(facts[key])}`" for key, name in names.items() if key in facts]
    use = '    pipeline("text-generation", model="FOLDER"{})("One morning")'
    lines += ["", "## Loading", "", "    from transformers import pipeline"]
    if facts["form"] == "gpt2":
        return "\n".join([*lines, use.format(""), ""])
    lines += [
        "    import oelm                                    # where oelm is installed",
        use.format(""),
        "    ",
        f"    # where it is not: runs {MODELING_FILE} of this folder, which says what it needs",
        use.format(", trust_remote_code=True"),
        "",
    ]
    return "\n".join(lines)


def _plain(value: Any) -> str:
    """Shown as text, whatever a run was called."""
    return " ".join(visible(value).replace("`", "'").split())
