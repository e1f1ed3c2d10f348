"""The verbs of one run: prepare, train, diagnose, generate, export, arms, compare. Heavy imports stand inside."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from oelm.cli.options import ArmOption, DataOption, JsonOption, PresetOption, SeedOption, SetOption, print_json
from oelm.errors import UserError


def prepare(
    source: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE|FOLDER",
            help="Text: stories (embedded), tinystories, wikitext103, openwebtext, or a text file or folder. "
            "Sentences with labels: xnli, mnli, sst2, or a folder with --task.",
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
            help="Local copy of a named corpus: text, JSON lines or parquet, file or folder; of a task: a folder with "
            "its .tsv or .jsonl files, for xnli with xnli/ and mnli/ below it.",
        ),
    ] = None,
    gpt2_folder: Annotated[
        Path | None, typer.Option("--gpt2-folder", help="Folder with GPT-2's encoder.json and vocab.bpe.")
    ] = None,
    stories: Annotated[int, typer.Option("--stories", min=1, help="How many embedded stories to write.")] = 20_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the embedded stories.")] = 0,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Encoding threads.", show_default="all cores")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option("--encoder", help="Sentences: the encoder, a folder or a hub name, whose tokenizer is used."),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", help="Sentences in a folder of your own: pairs or sentences.")
    ] = None,
    language: Annotated[
        str | None, typer.Option("--language", help="Sentences: language of xnli.", show_default="en")
    ] = None,
    train_file: Annotated[
        Path | None, typer.Option("--train", help="Sentences: a training file in place of the one below --source.")
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", min=1, help="Sentences: longest example in tokens.", show_default="128"),
    ] = None,
    train_examples: Annotated[
        int | None,
        typer.Option("--train-examples", min=1, help="Sentences: train on so many, chosen by the hash of the text."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a folder made with other settings.")] = False,
) -> None:
    """Turn text into token files: train, tune, val (and test where there is one).

    Examples:

      oelm prepare stories

      oelm prepare tinystories --source ~/TinyStories --tokenizer gpt2

      oelm prepare my_texts/ --tokenizer bpe:4096 --out data/mine

      oelm prepare xnli --source nli/ --encoder models/bert --language zh --train-examples 5000

      oelm prepare my_reviews/ --task sentences --encoder google-bert/bert-base-uncased
    """
    from oelm.data.tasks import TASKS

    for_sentences = {
        "encoder": encoder,
        "language": language,
        "train_file": train_file,
        "max_length": max_length,
        "train_examples": train_examples,
    }
    if source in TASKS or task is not None:
        _refuse_together("a task on sentences", tokenizer=tokenizer, gpt2_folder=gpt2_folder, workers=workers)
        _prepare_sentences(source, out=out, task=task, source_path=source_path, force=force, **for_sentences)
        return
    given = [name for name, value in for_sentences.items() if value is not None]
    if given:
        flag = "--train" if given[0] == "train_file" else f"--{given[0].replace('_', '-')}"
        raise UserError(f"{flag}: is for {', '.join(TASKS)}, or for a folder of sentences with --task pairs|sentences")
    from oelm.data.prepare import prepare as prepare_data
    from oelm.progress import preparation_progress

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
            force=force,
            progress=report,
        )
    ignored = manifest["ignored_files"]
    if ignored:
        some = ", ".join(ignored[:3]) + (", ..." if len(ignored) > 3 else "")
        typer.echo(f"left out {len(ignored)} files that belong to no split or are no text: {some}")
    for name, split in manifest["splits"].items():
        leaked = split.get("also_in_train", 0)  # datasets of before have no word of it
        warning = f"  WARNING: {leaked:,} of the documents are also in train" if leaked else ""
        typer.echo(f"{name:6} {split['documents']:>11,} documents  {split['tokens']:>14,} tokens{warning}")
    typer.echo(f"{folder}: tokenizer {manifest['tokenizer']}, vocabulary {manifest['vocabulary']:,}")


@contextlib.contextmanager
def _saying_that_nothing_was_written(folder: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"stopped; nothing was written to {folder}", err=True)
        raise


def _prepare_sentences(source: str, *, out: Path | None, encoder: str | None, **settings: Any) -> None:
    from oelm.data.prepare_sentences import prepare_sentences
    from oelm.progress import preparation_progress

    if encoder is None:
        raise UserError(f"{source}: sentences are prepared for one encoder; name its folder or hub name with --encoder")
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
        typer.echo(f"{name:6} {split['examples']:>9,} examples ({labels}), {', '.join(notes)}")
    for part in manifest["source"].values():
        dropped = {"without a label": part["unlabelled_dropped"], "with an empty text": part["empty_dropped"]}
        for what, count in dropped.items():
            if count:
                typer.echo(f"left out {count:,} examples {what} of {part['place']}")
    facts, model = manifest["facts"], manifest["encoder"]
    without = "" if model["has_weights"] else ", without weights: for runs with pretrained=false only"
    typer.echo(
        f"{folder}: for {model['model_type']} {model['source']}{without}; up to {facts['seq_len']} tokens, "
        f"{facts['mean_length']:.1f} on average; {manifest['split_rule']}"
    )


def train(
    config: Annotated[
        str | None, typer.Argument(metavar="[CONFIG.yaml]", help="A config file; without it a preset is used.")
    ] = None,
    preset: PresetOption = None,
    arm: ArmOption = None,
    data: DataOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The run directory itself.", show_default="runs/NAME/ARM-sSEED-FINGERPRINT"),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Group of runs under runs/.", show_default="the preset or config")
    ] = None,
    seed: SeedOption = None,
    assignments: SetOption = None,
    json_output: JsonOption = False,
) -> None:
    """Train one arm. The same command again resumes it, or says that it is finished.

    Several processes: torchrun --nproc-per-node 2 -m oelm train ...

    Examples:

      oelm train --preset tiny --arm frozen_head_orthogonal --out runs/frozen

      oelm train --preset medium-512 --data data/tinystories --set training.steps=2000 --set learning_rate=6e-4

      oelm train my_run.yaml --arm trained --seed 1
    """
    from oelm.run_directory import check_name
    from oelm.settings import DEFAULT_PRESET, load_settings

    settings = load_settings(config, preset=preset, arm=arm, data=data, seed=seed, assignments=tuple(assignments or ()))
    group = check_name(name) if name is not None else _group_of(config) if config else preset or DEFAULT_PRESET
    if out is not None:
        _check_path(out)
    from oelm.training.run import default_directory, run_with_data
    from oelm.training.run import train as train_run

    if out is None:
        out = default_directory(*run_with_data(settings.run), group=group)
    # With --json, standard output holds the object alone.
    with contextlib.redirect_stdout(sys.stderr) if json_output else contextlib.nullcontext():
        outcome = train_run(settings.run, settings.execution, out=out)
    if json_output:
        print_json(outcome.result)
    elif outcome.was_finished and outcome.result:
        from oelm.run_directory import final_numbers

        result = outcome.result
        typer.echo(f"{out}: this run is finished (step {result['steps']}, {final_numbers(result)}); nothing to do")


def diagnose(
    path: Annotated[
        Path | None, typer.Argument(metavar="[RUN|CHECKPOINT]", help="A run directory, a checkpoint or a best/ folder.")
    ] = None,
    preset: PresetOption = None,
    arm: ArmOption = None,
    data: DataOption = None,
    seed: SeedOption = None,
    assignments: SetOption = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Real training steps to take.")] = 3,
    json_output: JsonOption = False,
) -> None:
    """Show what is frozen, count it three ways, take real steps, save and load, and say whether all is as it should be.

    Examples:

      oelm diagnose --preset medium-512 --arm frozen_head_orthogonal --json

      oelm diagnose runs/frozen
    """
    from oelm.diagnosis import diagnose_arm, diagnose_stored

    if path is not None:
        _refuse_together("a run", preset=preset, arm=arm, data=data, seed=seed, set=assignments)
        diagnosis = diagnose_stored(path, steps=steps)
    else:
        from oelm.settings import load_settings

        settings = load_settings(preset=preset, arm=arm, data=data, seed=seed, assignments=tuple(assignments or ()))
        diagnosis = diagnose_arm(settings.run, data_given=data is not None, steps=steps)
    if json_output:
        print_json(diagnosis.as_json())
    else:
        typer.echo(diagnosis.as_text())
    if not diagnosis.healthy:
        raise typer.Exit(1)


def generate(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, a checkpoint or a best/ folder.")],
    prompt: Annotated[str, typer.Option("--prompt", help="How the text begins.")] = "",
    tokens: Annotated[int, typer.Option("--tokens", min=1, help="At most so many tokens a sample.")] = 200,
    samples: Annotated[int, typer.Option("--samples", min=1, help="How many samples.")] = 1,
    temperature: Annotated[
        float, typer.Option("--temperature", min=0.0, help="0 always takes the likeliest token.")
    ] = 0.8,
    top_k: Annotated[int, typer.Option("--top-k", min=0, help="Choose among the k likeliest; 0: among all.")] = 50,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=2**62, help="Seed of the first sample; the next takes the next.")
    ] = 0,
) -> None:
    """Sample text from a run, with a key/value cache.

    Example: oelm generate runs/frozen --prompt "Once upon a time" --samples 3
    """
    from oelm.sampling import sampled_texts

    for number, text in enumerate(
        sampled_texts(
            path, prompt=prompt, tokens=tokens, samples=samples, temperature=temperature, top_k=top_k or None, seed=seed
        )
    ):
        if samples > 1:
            typer.echo(f"--- sample {number + 1}, seed {seed + number}")
        typer.echo(text)


def export(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, a checkpoint or a best/ folder.")],
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="A new folder for the model.")],
    form: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="auto|oelm|gpt2",
            help="oelm: our class, which keeps what is frozen; gpt2: a stock GPT-2, which needs no oelm; "
            "auto: gpt2 where nothing is frozen or scheduled.",
        ),
    ] = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
) -> None:
    """Write a run's best model as a folder that Hugging Face transformers loads, with tokenizer and model card.

    Examples:

      oelm export runs/trained --to exports/trained

      oelm export runs/frozen/checkpoints/step-000400 --to exports/frozen
    """
    from oelm.huggingface.export import export as export_model

    _check_path(to, option="--to")
    done = export_model(path, to, form=form, force=force)
    typer.echo(f"{done.folder}: as {done.form}; {done.reason}")
    if not done.has_tokenizer:
        typer.echo(f"{done.folder}: without a tokenizer, because the data had none; give pipelines one of your own")


def arms() -> None:
    """List the named arms: how queries and keys start, and when they move.

    Example: oelm arms
    """
    from oelm.arms import ALIASES, ARMS, described

    width = max(map(len, ARMS))
    for name, spec in ARMS.items():
        also = [alias for alias, target in ALIASES.items() if target == name]
        typer.echo(f"{name:{width}} {described(spec)}{'  (also ' + ', '.join(also) + ')' if also else ''}")


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories to show side by side.")],
) -> None:
    """Show finished runs side by side: loss, perplexity or accuracy, trainable and frozen parameters, speed.

    Example: oelm compare runs/trained runs/frozen
    """
    from oelm.side_by_side import table

    typer.echo(table(runs))


def _refuse_together(what: str, **options: Any) -> None:
    for option, value in options.items():
        if value is not None:
            raise UserError(f"--{option.replace('_', '-')}: cannot be given together with {what}, which has its own")


def _group_of(config: str) -> str:
    """A config file may be called anything; what a name cannot hold becomes a dash."""
    import re

    return re.sub(r"[^\w.+ -]+", "-", Path(config).stem)[:200].strip(" .+_-") or "run"


def _check_path(path: Path, *, option: str = "--out") -> None:
    """Any path will do, with spaces, in any script; but not one that a later command line would misread."""
    import unicodedata

    kinds = {unicodedata.category(character) for character in str(path)}
    if "Cc" in kinds:
        raise UserError(f"{option} {str(path)!r}: control characters cannot be in a run's path")
    if "Cs" in kinds:
        raise UserError(f"{option} {str(path)!r}: not text in UTF-8; choose another path")
    if path.name in ("", ".."):
        raise UserError(f"{option} {path}: name the folder itself, for example {option} runs/mine")
    if path.name.startswith("-"):
        raise UserError(f"{option} {path}: a run's name cannot begin with '-'")
