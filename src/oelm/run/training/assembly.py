"""Config and data to parts: the objective with its model, the optimizer, and when each weight moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from oelm.core.config import EncoderRun, GptRun, ResolvedRun
from oelm.core.model.freezing import Schedule
from oelm.core.model.initialization import build
from oelm.core.model.parameters import rules
from oelm.core.model.transformer import GPT
from oelm.data.folders import ProbeData
from oelm.data.sentences import SentenceData
from oelm.data.tokens import TokenData
from oelm.run.training.at_answers import AtAnswers
from oelm.run.training.device import Machine
from oelm.run.training.distributed import Sharing
from oelm.run.training.memory import refuse_what_does_not_fit
from oelm.run.training.next_token import NextToken
from oelm.run.training.objective import Objective
from oelm.run.training.optimizer import build_optimizer

if TYPE_CHECKING:
    from oelm.data.folders import Data

Parts = tuple[Objective, torch.optim.AdamW, Schedule]


def assembled(run: ResolvedRun, data: Data, *, machine: Machine, world: Sharing) -> Parts:
    """Everything a run steps with, its model with its starting values on its device."""
    match run, data:
        case EncoderRun(), SentenceData():
            refuse_what_does_not_fit(run, machine)
            from oelm.run.training.classification import build_classification

            return with_optimizer(build_classification(run, data, machine=machine, world=world), run)
        case GptRun(), TokenData():
            train, held_out = data.splits["train"], data.splits[run.training.validation_split]
            gpt = gpt_on_device(run, machine)
            objective = NextToken(gpt, run, train=train, held_out=held_out, machine=machine, world=world)
            return with_optimizer(objective, run)
        case GptRun(), ProbeData():
            gpt = gpt_on_device(run, machine)
            return with_optimizer(AtAnswers(gpt, run, data.probe, machine=machine, world=world), run)
    raise TypeError(f"{run.data}: not the data of this kind of model")


def with_optimizer(objective: Objective, run: ResolvedRun) -> Parts:
    schedule = Schedule(rules(objective.model), steps=run.training.steps, num_layers=run.model.num_layers)
    return objective, build_optimizer(objective.model, run.training, objective.role_of), schedule


def gpt_on_device(run: GptRun, machine: Machine) -> GPT:
    refuse_what_does_not_fit(run, machine)
    gpt = build(run.model, run.seeds).to(machine.device, machine.dtype)
    # A tied output layer's gradient is dense; the embedding's part of it is then added row by row, in place.
    gpt.token_embedding.sparse = machine.kind == "cpu" and run.model.tied
    if machine.compile:
        compile_blocks(gpt)
    return gpt


def compile_blocks(gpt: GPT) -> None:
    """Compile one block's code for all layers. Every state of requires_grad and every shape has its own graph, so
    falling back to eager when there are too many must be an error, not a silent change of the arithmetic."""
    torch._dynamo.config.recompile_limit = 64
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    for block in gpt.blocks:
        block.compile(dynamic=False)
