"""Laws that hold for any treatment whatever: 20 random ones here, 200 under the marker."""

import random

import pytest
import torch
from random_treatments import LAYERS, invalid, valid
from safetensors.torch import load, save

from oelm.core.accounting import parts, totals
from oelm.core.config import Model, Seeds, Training, resolved_model
from oelm.core.model.freezing import Schedule
from oelm.core.model.initialization import build
from oelm.core.model.parameters import Count, counts_by_part, frozen_names, layer_of, role_of, rules
from oelm.core.model.transformer import GPT
from oelm.core.parts import BASELINE, ROLES
from oelm.core.repairs import NO_REPAIRS
from oelm.core.settings import load_settings
from oelm.machine.errors import UserError
from oelm.run.training.optimizer import build_optimizer

FEW, MANY = 20, 200
SEEDS = [pytest.param(seed, marks=[] if seed < FEW else [pytest.mark.trial]) for seed in range(MANY)]
TOKENS = torch.randint(0, 19, (2, 8), generator=torch.Generator().manual_seed(0))
STEPS = 4


def moved_from_its_start(model: Model) -> GPT:
    """After real steps with decay, in which exactly what is frozen rested."""
    gpt = build(model, Seeds())
    optimizer = build_optimizer(gpt, Training(weight_decay=0.5, learning_rate=1e-2))
    schedule = Schedule(rules(gpt), steps=STEPS, num_layers=LAYERS)
    before = {name: value.detach().clone() for name, value in gpt.named_parameters()}
    for step in range(1, STEPS + 1):
        schedule.apply(gpt, step)
        logits = gpt.logits(gpt(TOKENS[:, :-1]))
        if any(parameter.requires_grad for parameter in gpt.parameters()):
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), TOKENS[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    changed = {name for name, value in gpt.named_parameters() if not torch.equal(before[name], value)}
    assert changed == set(before) - set(frozen_names(gpt))
    return gpt


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_treatment_keeps_every_law(seed):
    model = valid(seed)
    sizes = resolved_model(model)
    start = build(model, Seeds())

    counted = counts_by_part(start)
    assert {(part.role, part.layer): Count(part.total, part.frozen, part.implied) for part in parts(sizes)} == counted
    assert totals(sizes).total == sum(value.numel() for value in start.parameters())

    baseline = build(Model(**{name: getattr(model, name) for name in SIZES}), Seeds()).state_dict()
    for name, value in start.state_dict().items():
        role = role_of(name)
        untouched = role in ROLES and model.part_at(role, layer_of(name)) == BASELINE.of(role)
        if untouched and value.shape == baseline[name].shape:
            assert torch.equal(value, baseline[name]), name

    unrepaired = build(model.model_copy(update={"repairs": NO_REPAIRS}), Seeds())
    assert torch.equal(start(TOKENS), unrepaired(TOKENS))

    trained = moved_from_its_start(model)
    loaded = build(model, Seeds(weights=1, projections=2))
    loaded.load_state_dict(load(save({name: value.contiguous() for name, value in trained.state_dict().items()})))
    assert torch.equal(loaded.logits(loaded(TOKENS)), trained.logits(trained(TOKENS)))
    assert frozen_names(loaded) == frozen_names(trained)

    trained, pieces = trained.double(), random.Random(seed).choice([[1] * 8, [3, 5], [2, 1, 1, 4]])
    caches = trained.new_caches()
    with torch.no_grad():
        cached = torch.cat([trained(piece, caches) for piece in TOKENS.split(pieces, dim=1)], dim=1)
        torch.testing.assert_close(cached, trained(TOKENS), rtol=1e-9, atol=1e-9)


SIZES = ("vocabulary", "seq_len", "d_model", "num_layers", "num_heads", "d_ff")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_treatment_that_cannot_be_gets_one_line_with_its_key(seed):
    assignments, key = invalid(seed)
    with pytest.raises(UserError) as error:
        load_settings(preset="tiny", assignments=assignments)
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"--set {key}: "), line
