"""Frozen weights never move, scheduled ones exactly on schedule, and a change of a resting weight is noticed."""

import pytest
import torch

from bare_loop import moved, parameters, start
from oelm.core.arms import GPT_ARMS
from oelm.core.model.freezing import FrozenWeightChanged, Schedule, Watch, moves_at
from oelm.core.model.initialization import build
from oelm.core.model.parameters import layer_of, role_of, rules
from oelm.core.moves import After, Before, Every
from oelm.core.parts import BASELINE, ROLES, Part
from small_runs import small_run

FROZEN = [name for name in GPT_ARMS if name.startswith("frozen") or "reservoir" in name]
SCHEDULED = ["every_n", "late_unfreeze", "progressive_unfreeze", "train_then_freeze"]
MODES = [
    {},
    {"precision": "bfloat16"},
    {"precision": "float64"},
    {"micro_batch_size": 1},
    pytest.param({"compile": "on"}, marks=pytest.mark.trial),  # compiling takes long, and the next line does it too
    {"compile": "on", "precision": "bfloat16"},
]


def is_query_or_key(name: str) -> bool:
    return ".query." in name or ".key." in name


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: "-".join(map(str, mode.values())) or "plain")
@pytest.mark.parametrize("arm", ["frozen_head_orthogonal", "frozen_half"])
def test_frozen_weights_never_move_and_all_others_do(arm, mode, token_folder):
    run = small_run(arm, steps=5, weight_decay=0.5, gradient_clip=0.01)
    gpt, optimizer, steps = start(run, token_folder, **mode)
    before = parameters(gpt)
    assert any(result.clipped for result in steps)
    resting = {n for n in before if is_query_or_key(n) and (arm != "frozen_half" or n.endswith(".covered"))}
    assert moved(before, parameters(gpt)) == set(before) - resting
    assert not any(parameter in optimizer.state for n, parameter in gpt.named_parameters() if n in resting)


@pytest.mark.parametrize("arm", FROZEN)
def test_every_frozen_arm_keeps_exactly_its_frozen_part(arm, token_folder):
    run = small_run(arm, steps=3, weight_decay=0.5)
    gpt, _, steps = start(run, token_folder)
    before = {name: value.clone() for name, value in gpt.state_dict().items()}
    list(steps)
    for name, after in gpt.state_dict().items():
        layer = layer_of(name)
        part = run.model.part_at(role_of(name), layer)
        rows = part.frozen_rows(len(after), heads=4)
        assert torch.equal(before[name][:rows], after[:rows]), name
        same = (before[name] == after).flatten(1).all(dim=1) if after.dim() > 1 else before[name] == after
        assert not same[rows:].any(), name


def run_with(role: str, **said):
    """The baseline, but of this role what is said."""
    run = small_run(steps=6, weight_decay=0.5, learning_rate=1e-2)
    parts = BASELINE.model_copy(update={role: Part(start=ROLES[role].start, **said)})
    return run.model_copy(update={"model": run.model.model_copy(update={"parts": parts})})


SOME_ROLES = [pytest.param(role, marks=[] if role in ("query", "norm") else [pytest.mark.trial]) for role in ROLES]


@pytest.mark.parametrize("moves", [Every(steps=2), After(fraction=0.5), Before(fraction=0.5)], ids=lambda m: m.kind)
@pytest.mark.parametrize("role", SOME_ROLES)
def test_every_role_moves_exactly_on_its_schedule(role, moves, token_folder):
    gpt, optimizer, steps = start(run_with(role, moves=moves), token_folder)
    before, updates = parameters(gpt), 0
    for result in steps:
        after = parameters(gpt)
        is_due = moves_at(moves, result.step, steps=6, layer=None, num_layers=4)
        resting = set() if is_due else {name for name in before if role_of(name) == role}
        assert moved(before, after) == set(before) - resting, f"step {result.step}"
        before, updates = after, updates + is_due
    assert updates == 3
    counted = {name: optimizer.state[value]["step"].item() for name, value in gpt.named_parameters()}
    assert all(counted[name] == (updates if role_of(name) == role else 6) for name in counted)


@pytest.mark.parametrize("mode", [{}, {"compile": "on"}], ids=["eager", "compiled"])
@pytest.mark.parametrize("arm", SCHEDULED)
def test_a_scheduled_weight_moves_exactly_when_its_schedule_says(arm, mode, token_folder):
    run = small_run(arm, steps=20, weight_decay=0.5)
    gpt, optimizer, steps = start(run, token_folder, **mode)
    schedule = Schedule(rules(gpt), steps=20, num_layers=4)
    updates = dict.fromkeys(schedule.rules, 0)
    before = parameters(gpt)
    for result in steps:
        after = parameters(gpt)
        expected = {name for name in before if schedule.moves(name, result.step)}
        assert moved(before, after) == expected, f"step {result.step}"
        for name in expected:
            updates[name] += 1
        before = after
    for name, parameter in gpt.named_parameters():
        counted = optimizer.state[parameter]["step"].item() if parameter in optimizer.state else 0
        assert counted == updates[name], f"{name}: its optimizer state counts its own updates"


@pytest.mark.parametrize("arm", SCHEDULED)
def test_schedules_do_what_their_names_say(arm):
    moves = GPT_ARMS[arm].parts.query.moves
    times = {
        layer: [s for s in range(1, 101) if moves_at(moves, s, steps=100, layer=layer, num_layers=4)]
        for layer in range(4)
    }
    match arm:
        case "every_n":
            assert times[0] == list(range(10, 101, 10))
        case "late_unfreeze":
            assert times[0] == times[3] == list(range(81, 101))
        case "progressive_unfreeze":
            assert [times[layer][0] for layer in (3, 2, 1, 0)] == [51, 63, 76, 88]
        case "train_then_freeze":
            assert times[0] == times[3] == list(range(1, 21))


@pytest.mark.parametrize("arm", ["frozen_half", "every_n", "late_unfreeze"])
def test_a_weight_that_rests_has_no_gradient_not_even_an_old_one(arm):
    run = small_run(arm)
    gpt = build(run.model, run.seeds)
    schedule = Schedule(rules(gpt), steps=20, num_layers=4)
    resting = {name for name in schedule.may_rest if not schedule.moves(name, 3)}
    for parameter in gpt.parameters():
        parameter.grad = torch.ones_like(parameter)
    schedule.apply(gpt, 3)
    assert resting == {name for name, parameter in gpt.named_parameters() if parameter.grad is None} != set()


def test_a_look_is_held_against_the_one_before_it(token_folder):
    """A weight that moved up to a look, and rests since, is compared with what it was at that look."""
    gpt, _, _ = start(small_run("train_then_freeze"), token_folder)
    watch = Watch.begin(Schedule(rules(gpt), steps=20, num_layers=4), gpt, 0)
    query = gpt.blocks[0].attention.query.weight
    with torch.no_grad():
        query.add_(1.0)
    watch.check(gpt, 4)  # its last update
    watch.check(gpt, 12)
    with torch.no_grad():
        query.add_(1.0)
    with pytest.raises(FrozenWeightChanged, match="between steps 12 and 20"):
        watch.check(gpt, 20)


def test_thawing_layer_by_layer_when_compiled_never_falls_back_to_eager(token_folder):
    """Each state of requires_grad is a graph of its own: two a block's code, whatever the number of layers."""
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    run = small_run("progressive_unfreeze", steps=20)
    _, _, steps = start(run, token_folder, compile="on")
    list(steps)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs == 2


def test_a_late_thawed_weight_starts_its_moments_afresh(token_folder):
    run = small_run("late_unfreeze", steps=10, weight_decay=0.5)
    gpt, optimizer, steps = start(run, token_folder)
    query = gpt.blocks[0].attention.query.weight
    for result in steps:
        assert (query in optimizer.state and bool(optimizer.state[query])) == (result.step > 8)
    assert optimizer.state[query]["step"].item() == 2


@pytest.mark.parametrize("moves", [Every(steps=4), After(fraction=0.5), Before(fraction=0.5)])
def test_resting_intervals_agree_with_single_steps(moves):
    run = small_run("every_n")
    gpt_rules = {"w": rules_entry(moves)}
    schedule = Schedule(gpt_rules, steps=run.training.steps, num_layers=4)
    for first in range(1, 21):
        for last in range(first, 21):
            expected = not any(schedule.moves("w", step) for step in range(first, last + 1))
            assert schedule.rests_between("w", first, last) == expected


def rules_entry(moves):
    from oelm.core.model.parameters import Rule

    return Rule(moves=moves, layer=0)


@pytest.mark.parametrize(("arm", "step", "noticed"), [
    ("frozen_head_orthogonal", 5, True),
    ("frozen_half", 5, True),
    ("late_unfreeze", 5, True),
    ("late_unfreeze", 19, False),
    ("train_then_freeze", 3, False),
    ("every_n", 5, True),
])  # fmt: skip
def test_a_changed_resting_weight_is_noticed(arm, step, noticed, token_folder):
    gpt, _, _ = start(small_run(arm), token_folder)
    schedule = Schedule(rules(gpt), steps=20, num_layers=4)
    watch = Watch.begin(schedule, gpt, 0)
    watch.check(gpt, step)
    name = schedule.may_rest[0]
    watch = Watch.begin(schedule, gpt, 0)
    with torch.no_grad():
        dict(gpt.named_parameters())[name][0, 0] += 1e-6
    if noticed:
        with pytest.raises(FrozenWeightChanged, match=name):
            watch.check(gpt, step)
    else:
        watch.check(gpt, step)
