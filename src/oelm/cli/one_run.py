"""The verbs of one run: prepare, train, diagnose, generate, export, arms, keys. Heavy imports stand inside."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from oelm.cli import completion
from oelm.cli.options import (
    ArmOption,
    DataOption,
    JsonOption,
    PresetOption,
    SeedOption,
    SetOption,
    echo,
    print_json,
    refuse_if_in_archive,
)
from oelm.machine.errors import UserError
from oelm.machine.plurals import number_of

StoredRun = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="A run directory, a checkpoint or a best/ folder.", autocompletion=completion.runs
    ),
]


def prepare(
    source: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE|FOLDER",
            help="Text: stories (embedded), tinystories, wikitext103, openwebtext, or a text file or folder. "
            "Sentences with labels: xnli, mnli, sst2, or a folder with --task. A folder here that is called like one "
            "of these: ./NAME.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the token files.", show_default="data/NAME, data/xnli-LANGUAGE"),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer", help="gpt2, or bpe:N trained on the corpus.", show_default="bpe:1024 for stories, else gpt2"
        ),
    ] = None,
    source_path: Annotated[
        Path | None,
        typer.Option(
            "--source",
            help="Local copy of a named corpus: a file or folder of text, JSON lines, CSV or parquet. For a task: a "
            "folder with its .tsv, .csv or .jsonl files (for xnli, in subfolders xnli/ and mnli/).",
        ),
    ] = None,
    gpt2_folder: Annotated[
        Path | None, typer.Option("--gpt2-folder", help="Folder with GPT-2's encoder.json and vocab.bpe.")
    ] = None,
    stories: Annotated[int, typer.Option("--stories", min=1, help="Number of embedded stories to write.")] = 20_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed for the embedded stories.")] = 0,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Number of encoding threads.", show_default="all cores")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option("--encoder", help="Sentences: the encoder (folder or hub name) to prepare them for."),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="Sentences: what a folder of your own contains, pairs or sentences.")
    ] = None,
    language: Annotated[
        str | None, typer.Option("--language", help="Sentences: language, for xnli.", show_default="en")
    ] = None,
    train_file: Annotated[
        Path | None, typer.Option("--train", help="Sentences: training file to use instead of the one under --source.")
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", min=1, help="Sentences: at most N tokens per example.", show_default="128"),
    ] = None,
    train_examples: Annotated[
        int | None,
        typer.Option(
            "--train-examples", min=1, help="Sentences: train on at most N examples, chosen by a hash of their text."
        ),
    ] = None,
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding",
            help="Encoding of local files that are not UTF-8: gbk, big5, cp1252, ...",
            show_default="utf-8",
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            "--column", help="Column of your CSV, JSON lines or parquet that contains the text.", show_default="text"
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a folder that was prepared with other settings.")
    ] = False,
) -> None:
    """Turn text into token files (train, tune, val, test).

    \b
    Examples:
      oelm prepare stories
      oelm prepare tinystories --source ~/TinyStories --tokenizer gpt2
      oelm prepare my_texts/ --tokenizer bpe:4096 --out data/mine
      oelm prepare xnli --source nli/ --encoder models/bert --language zh
      oelm prepare my_reviews/ --task sentences --encoder google-bert/bert-base-uncased
    """
    from oelm.data.corpora import NAMES
    from oelm.data.tasks import TASKS

    if source in (*NAMES, *TASKS) and source_path is None and Path(source).exists():
        echo(
            f"{source}: is taken for the name of known data; to read {source} in this folder, give ./{source}", err=True
        )
    if encoding is not None:
        _warn_of_another_encoding(source_path or Path(source), encoding)
    for_sentences: dict[str, Any] = {
        "encoder": encoder,
        "language": language,
        "train_file": train_file,
        "max_length": max_length,
        "train_examples": train_examples,
    }
    if source in TASKS or task is not None:
        _refuse_together(
            "a task on sentences", tokenizer=tokenizer, gpt2_folder=gpt2_folder, workers=workers, column=column
        )
        files: dict[str, Any] = {"source_path": source_path, "encoding": encoding, "force": force}
        _prepare_sentences(source, out=out, task=task, **files, **for_sentences)
        return
    given = [name for name, value in for_sentences.items() if value is not None]
    if given:
        flag = "--train" if given[0] == "train_file" else f"--{given[0].replace('_', '-')}"
        raise UserError(f"{flag}: is for {', '.join(TASKS)}, or for a folder of sentences with --task pairs|sentences")
    from oelm.data.prepare import prepare as prepare_data
    from oelm.machine.progress import preparation_progress

    folder = out or Path("data") / Path(source).stem
    with _saying_that_nothing_was_written(folder), preparation_progress() as report:
        manifest = prepare_data(
            source,
            out=folder,
            tokenizer=tokenizer,
            source_path=source_path,
            gpt2_folder=gpt2_folder,
            stories=stories,
            seed=seed,
            workers=workers,
            encoding=encoding,
            column=column,
            force=force,
            progress=report,
        )
    ignored = manifest["ignored_files"]
    if ignored:
        some = ", ".join(ignored[:3]) + (", ..." if len(ignored) > 3 else "")
        echo(f"ignored {number_of(len(ignored), 'file')} (in no split, or not text): {some}")
    crlf = sum(split.get("crlf_line_ends", 0) for split in manifest["splits"].values())
    if crlf:
        echo(f"{crlf:,} line endings are CRLF (Windows); they were read as LF")
    for name, split in manifest["splits"].items():
        leaked = split.get("also_in_train", 0)  # datasets of before have no word of it
        warning = f"  WARNING: {leaked:,} of the documents are also in train" if leaked else ""
        echo(f"{name:6} {split['documents']:>11,} documents  {split['tokens']:>14,} tokens{warning}")
    echo(f"{folder}: tokenizer {manifest['tokenizer']}, vocabulary {manifest['vocabulary']:,}")


def _warn_of_another_encoding(path: Path, encoding: str) -> None:
    from oelm.data.encodings import doubt

    with contextlib.suppress(OSError):  # what cannot be read is said when it is
        for file in [path] if path.is_file() else sorted(path.rglob("*.*")):
            if file.is_file() and (looks := doubt(file, encoding)):
                echo(f"WARNING: {file}: looks like {looks}, but is read as {encoding} as requested", err=True)
                return


@contextlib.contextmanager
def _saying_that_nothing_was_written(folder: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        echo(f"stopped; nothing was written to {folder}", err=True)
        raise


def _prepare_sentences(source: str, *, out: Path | None, encoder: str | None, **settings: Any) -> None:
    from oelm.data.prepare_sentences import prepare_sentences
    from oelm.machine.progress import preparation_progress

    if encoder is None:
        raise UserError(f"{source}: sentences are prepared for one encoder; give its folder or hub name with --encoder")
    language = f"-{settings['language'] or 'en'}" if source == "xnli" else ""
    folder = out or Path("data") / f"{Path(source).name}{language}"
    with _saying_that_nothing_was_written(folder), preparation_progress() as report:
        manifest = prepare_sentences(source, out=folder, encoder=encoder, progress=report, **settings)
    for name, split in manifest["splits"].items():
        labels = ", ".join(f"{count:,} labelled {label}" for label, count in split["labels"].items())
        notes = [f"{split['truncated']:,} truncated"]
        if split["also_in_train"]:
            notes.append(f"{split['also_in_train']:,} also in train")
        if split["unknown_tokens"]:
            share = split["unknown_tokens"] / split["tokens"]
            notes.append(f"{share:.2%} of the tokens unknown to the encoder")
        echo(f"{name:6} {number_of(split['examples'], 'example'):>18} ({labels}), {', '.join(notes)}")
    for part in manifest["source"].values():
        dropped = {"without a label": part["unlabelled_dropped"], "with an empty text": part["empty_dropped"]}
        for what, count in dropped.items():
            if count:
                echo(f"left out {number_of(count, 'example')} {what} from {part['place']}")
    facts, model = manifest["facts"], manifest["encoder"]
    without = "" if model["has_weights"] else ", without weights, so only for runs with pretrained=false"
    echo(
        f"{folder}: for {model['model_type']} {model['source']}{without}; up to {facts['seq_len']} tokens, "
        f"{facts['mean_length']:.1f} on average; {manifest['split_rule']}"
    )


def train(
    config: Annotated[
        str | None, typer.Argument(metavar="CONFIG.yaml", help="A config file; without one, a preset is used.")
    ] = None,
    preset: PresetOption = None,
    arm: ArmOption = None,
    data: DataOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Run directory.", show_default="runs/NAME/ARM-sSEED-FINGERPRINT"),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", help="Folder of the run directory under runs/.", show_default="the preset or config"),
    ] = None,
    seed: SeedOption = None,
    assignments: SetOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show device, micro-batch, work and memory; start nothing.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Train one arm. Repeat the command to resume; a finished run is left alone.

    With several processes: torchrun --nproc-per-node 2 -m oelm train ...

    \b
    Examples:
      oelm train --preset tiny --arm frozen_head_orthogonal --out runs/frozen
      oelm train --preset small --data data/tinystories --set learning_rate=6e-4
      oelm train my_run.yaml --arm trained --seed 1
    """
    from oelm.core.settings import DEFAULT_PRESET, load_settings
    from oelm.run.directory import check_name

    settings = load_settings(config, preset=preset, arm=arm, data=data, seed=seed, assignments=tuple(assignments or ()))
    group = check_name(name) if name is not None else _group_of(config) if config else preset or DEFAULT_PRESET
    if out is not None:
        _check_path(out)
    if dry_run:
        from oelm.run.training.run import planned

        if json_output:
            raise UserError("--dry-run, --json: give one of the two")
        for line in planned(settings.run, settings.execution, out=out, group=group):
            echo(line)
        return
    from oelm.run.training.run import train as train_run

    # With --json, standard output holds the object alone.
    with contextlib.redirect_stdout(sys.stderr) if json_output else contextlib.nullcontext():
        outcome = train_run(settings.run, settings.execution, out=out, group=group)
    if json_output:
        print_json(outcome.result)
    elif outcome.was_finished and outcome.result:
        from oelm.run.directory import final_numbers

        folder, result = outcome.directory.path, outcome.result
        echo(f"{folder}: this run is finished (step {result['steps']}, {final_numbers(result)}); nothing to do")


def diagnose(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN|CHECKPOINT",
            help="A run directory, a checkpoint or a best/ folder.",
            autocompletion=completion.runs,
        ),
    ] = None,
    preset: PresetOption = None,
    arm: ArmOption = None,
    data: DataOption = None,
    seed: SeedOption = None,
    assignments: SetOption = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Number of real training steps to take.")] = 3,
    json_output: JsonOption = False,
) -> None:
    """Show what is frozen, and check that it stays frozen.

    Counts parameters in three ways, takes real training steps, saves and loads. Exit code 1 if a check fails.

    \b
    Examples:
      oelm diagnose --preset medium-512 --arm frozen_head_orthogonal --json
      oelm diagnose runs/frozen
    """
    from oelm.run.diagnosis import diagnose_arm, diagnose_stored

    if path is not None:
        refuse_if_in_archive(path, "diagnose")
        _refuse_together("a run", preset=preset, arm=arm, data=data, seed=seed, set=assignments)
        diagnosis = diagnose_stored(path, steps=steps)
    else:
        from oelm.core.settings import load_settings

        settings = load_settings(preset=preset, arm=arm, data=data, seed=seed, assignments=tuple(assignments or ()))
        diagnosis = diagnose_arm(settings.run, data_given=data is not None, steps=steps)
    if json_output:
        print_json(diagnosis.as_json())
    else:
        echo(diagnosis.as_text())
    if not diagnosis.healthy:
        raise typer.Exit(1)


def generate(
    path: StoredRun,
    prompt: Annotated[str, typer.Option("--prompt", help="How the text begins.")] = "",
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="At most N tokens per sample.")] = 200,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Number of samples.")] = 1,
    temperature: Annotated[
        float,
        typer.Option("--temperature", min=0.0, help="Sampling temperature; 0 always picks the most likely token."),
    ] = 0.8,
    top_k: Annotated[
        int, typer.Option("--top-k", min=0, help="Sample from the k most likely tokens; 0: from all.")
    ] = 50,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=2**62, help="Seed of the first sample; each further sample adds one.")
    ] = 0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Also store the text in the run directory, where `oelm board` shows it.")
    ] = False,
) -> None:
    """Sample text from a trained model.

    \b
    Example: oelm generate runs/frozen --prompt "Once upon a time" --samples 3
    """
    refuse_if_in_archive(path, "generate")
    from oelm.run.stored_models.sampling import keep_sample, run_to_keep_in, sampled_texts

    directory = run_to_keep_in(path) if keep else None
    texts = []
    for number, text in enumerate(
        sampled_texts(
            path, prompt=prompt, tokens=tokens, samples=samples, temperature=temperature, top_k=top_k or None, seed=seed
        )
    ):
        if samples > 1:
            echo(f"--- sample {number + 1}, seed {seed + number}")
        echo(text)
        texts.append(text)
    if directory is not None:
        facts = {"prompt": prompt, "temperature": temperature, "top_k": top_k, "seed": seed}
        echo(f"stored in {keep_sample(directory, path, texts, **facts)}", err=True)


def export(
    path: StoredRun,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="New folder for the model.")],
    form: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="auto|oelm|gpt2",
            help="oelm: a model class of oelm, which keeps frozen weights frozen; gpt2: a stock GPT-2, which does not "
            "need oelm; auto: gpt2 if nothing is frozen or scheduled, else oelm.",
        ),
    ] = "auto",
    licence: Annotated[
        str | None,
        typer.Option("--licence", metavar="NAME", help="Licence of the model, for its card.", show_default="unknown"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
) -> None:
    """Write a run's best model as a folder for transformers.

    The folder includes the tokenizer and a model card.

    \b
    Examples:
      oelm export runs/trained --to exports/trained
      oelm export runs/frozen/checkpoints/step-000400 --to exports/frozen
    """
    refuse_if_in_archive(path, "export")
    _check_path(to, option="--to")
    from oelm.run.stored_models.export import export as export_model

    done = export_model(path, to, form=form, licence=licence, force=force)
    echo(f"{done.folder}: as {done.form}; {done.reason}")
    if not done.has_tokenizer:
        echo(f"{done.folder}: without a tokenizer, because the data has none; pipelines need one of your own")


def arms(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show this arm alone.", show_default="all", autocompletion=completion.arms),
    ] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", help="Count parameters at the sizes of this preset.", show_default="tiny")
    ] = None,
) -> None:
    """List the named arms, or show one with its counts.

    The list says which parts start how, when they are trained, and what share of the parameters is trained.

    With a name: every part in which that arm differs from the baseline, and its parameters by part.

    \b
    Examples:
      oelm arms
      oelm arms frozen_feed_forward
      oelm arms reservoir --preset gpt2-124m
    """
    from oelm.compat.arm_names import TWO_MEANINGS
    from oelm.core.arm_list import arm_lines, list_lines

    for line in list_lines(preset) if name is None else arm_lines(name, preset):
        echo(line)
    if name is None:
        echo(f"\n{TWO_MEANINGS}")


def keys(
    prefix: Annotated[
        str | None,
        typer.Argument(
            metavar="PREFIX", help="A section, the beginning of a key, or its last part.", show_default="all"
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", help="Show the values of a preset instead of the defaults.")
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """List every setting with default, type, bounds and meaning.

    Change settings with --set KEY=VALUE or in a config file.

    \b
    Examples:
      oelm keys
      oelm keys training --preset tiny
      oelm keys learning_rate --json
    """
    from oelm.core.keys import keys as settings_from
    from oelm.core.settings import DEFAULT_PRESET, OWN_OPTIONS

    found = settings_from(prefix, preset=preset)
    if json_output:
        print_json({"keys": [each.as_json() for each in found]})
        return
    for line in (line for each in found for line in each.lines):
        echo(line)
    if preset is None:
        echo(
            "a preset changes these defaults, and `oelm train` without a config file uses one: "
            f"oelm keys --preset {DEFAULT_PRESET}"
        )
    if any(each.key not in OWN_OPTIONS for each in found):
        echo("change one with --set KEY=VALUE, in a config file, or in a study under base, arms.NAME.set or tuning.set")


def _refuse_together(what: str, **options: Any) -> None:
    for option, value in options.items():
        if value is not None:
            raise UserError(f"--{option.replace('_', '-')}: cannot be combined with {what}, which has its own")


def _group_of(config: str) -> str:
    """A config file may be called anything; what a name cannot hold becomes a dash."""
    import re

    return re.sub(r"[^\w.+ -]+", "-", Path(config).stem)[:200].strip(" .+_-") or "run"


def _check_path(path: Path, *, option: str = "--out") -> None:
    """Any path will do, with spaces, in any script; but not one that a later command line would misread."""
    import unicodedata

    kinds = {unicodedata.category(character) for character in str(path)}
    if "Cc" in kinds:
        raise UserError(f"{option} {str(path)!r}: the path of a run cannot contain control characters")
    if "Cs" in kinds:
        raise UserError(f"{option} {str(path)!r}: not valid UTF-8; choose another path")
    if path.name in ("", ".."):
        raise UserError(f"{option} {path}: give the folder itself, for example {option} runs/mine")
    if path.name.startswith("-"):
        raise UserError(f"{option} {path}: a run's name cannot begin with '-'")
