"""Fine-tuning an encoder against transformers.Trainer: same model, data and batch, both group by length. Ratio last.

    python benchmarks/fine_tuning_speed.py DATA [--examples 320] [--batch-size 16] [--rounds 12] [--threads 2]

DATA is a folder made by `oelm prepare` for sentences. In each round both make one pass over the same examples, in
alternating order; a pass is timed from before its first batch is read to after its last update. Aim: the lower bound
of our throughput over the Trainer's is at least 0.98.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from interleaved import ratio_line
from oelm.core.config import resolved
from oelm.core.settings import load_settings
from oelm.data.sentences import SentenceData, Sentences, open_sentences
from oelm.execution.timing.workload import TimedArm, Workload
from oelm.run.training.device import prepare_process, resolve_machine

OURS, TRAINERS = "oelm", "transformers.Trainer"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--examples", type=int, default=320)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    data = first_examples(open_sentences(options.data), options.examples // options.batch_size * options.batch_size)
    passes = {
        OURS: our_pass(data, options.batch_size, options.threads),
        TRAINERS: trainers_pass(data, options.batch_size),
    }
    for take in passes.values():
        take()
    ratios = []
    for number in range(options.rounds):
        order = (OURS, TRAINERS) if number % 2 == 0 else (TRAINERS, OURS)
        seconds = {name: passes[name]() for name in order}
        ratios.append(seconds[TRAINERS] / seconds[OURS])
        took = ", ".join(f"{name} {seconds[name]:.2f} s" for name in (OURS, TRAINERS))
        print(f"round {number + 1}/{options.rounds}: {took}", flush=True)
    print(ratio_line("throughput, oelm / transformers.Trainer", ratios, "lower bound at least 0.98"))


def first_examples(data: SentenceData, count: int) -> SentenceData:
    train = data.splits["train"]
    part = Sentences(
        ids=train.ids[: train.offsets[count]],
        offsets=train.offsets[: count + 1],
        seconds=train.seconds[:count],
        labels=train.labels[:count],
    )
    return dataclasses.replace(data, splits=data.splits | {"train": part})


def our_pass(data: SentenceData, batch_size: int, threads: int) -> Callable[[], float]:
    changes = (f"training.batch_size={batch_size}", "precision=float32", "device=cpu", f"threads={threads}")
    settings = load_settings(preset="fine-tuning", assignments=[*changes, f"micro_batch_size={batch_size}"])
    run = resolved(settings.run, data.facts)
    machine, _ = resolve_machine(settings.execution, run, local_rank=0, world_size=1)
    prepare_process(machine)
    arm = TimedArm(run, machine, Workload(data, data.facts, data.digest, str(data.folder)))

    def take() -> float:
        began = time.perf_counter()
        for _ in range(len(data.splits["train"]) // batch_size):
            arm.step()
        return time.perf_counter() - began

    return take


def trainers_pass(data: SentenceData, batch_size: int) -> Callable[[], float]:
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    class Clock(TrainerCallback):
        seconds = 0.0

        def on_epoch_begin(self, *_: object, **__: object) -> None:
            self.began = time.perf_counter()

        def on_epoch_end(self, *_: object, **__: object) -> None:
            self.seconds = time.perf_counter() - self.began

    model = AutoModelForSequenceClassification.from_pretrained(
        data.encoder_source, num_labels=len(data.labels), use_safetensors=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    clock = Clock()
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=tempfile.mkdtemp(),
            per_device_train_batch_size=batch_size,
            num_train_epochs=1,
            train_sampling_strategy="group_by_length",
            max_grad_norm=1.0,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=rows_of(data.splits["train"]),
        data_collator=DataCollatorWithPadding(AutoTokenizer.from_pretrained(data.tokenizer_folder)),
        optimizers=(optimizer, constant),
        callbacks=[clock],
    )

    def take() -> float:
        trainer.train()
        return clock.seconds

    return take


def rows_of(sentences: Sentences) -> list[dict[str, object]]:
    """What a tokenized dataset holds for each example."""
    rows = []
    for index, label in enumerate(sentences.labels.tolist()):
        ids = sentences.example(index).tolist()
        second = int(sentences.seconds[index])
        types = [int(place >= second) for place in range(len(ids))]
        rows.append({"input_ids": ids, "attention_mask": [1] * len(ids), "token_type_ids": types, "labels": label})
    return rows


if __name__ == "__main__":
    main()
