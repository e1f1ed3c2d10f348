"""transformers.Trainer with an adapted model: when each weight moves, counted in updates of its optimizer."""

import pytest
import torch
import transformers
from trainers import STEPS, Movements, movements, trainer_of

import oelm
from oelm.core.model.freezing import FrozenWeightChanged
from oelm.core.model.parameters import frozen_names, layer_of, rules
from oelm.core.moves import After, Before, Every, Moves
from oelm.core.parts import Part, Parts
from tiny_transformers import tiny

pytest.importorskip("accelerate", reason="pip install accelerate")


def both(moves: Moves, start: str = "keep", share: float = 1.0) -> Parts:
    projection = Part(start=start, moves=moves, share=share)
    return Parts(query=projection, key=projection)


def governed(model) -> list[str]:
    return [name for name, rule in rules(model).items() if rule.moves.kind != "always"]


EVERY_STEP = list(range(1, STEPS + 1))


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        (After(fraction=0.5, order="layer_by_layer"), {1: [6, 7, 8, 9, 10], 0: [8, 9, 10]}),
        (Every(steps=3), {0: [3, 6, 9], 1: [3, 6, 9]}),
        (Before(fraction=0.2), {0: [1, 2], 1: [1, 2]}),
    ],
)
def test_weights_move_exactly_when_their_schedule_says(kind, moves, expected, tmp_path):
    model = tiny(kind)
    oelm.apply(model, both(moves, share=0.5))
    moved = movements(model, tmp_path)
    names = governed(model)
    assert len(names) > 0
    for name, _ in model.named_parameters():
        assert moved[name] == (expected[layer_of(name)] if name in names else EVERY_STEP), name


def test_frozen_weights_never_move_and_are_not_in_the_optimizer(tmp_path):
    model = tiny("gpt2")
    oelm.apply(model, "frozen_head_orthogonal")
    seen = Movements()
    trainer = trainer_of(model, tmp_path, seen)
    trainer.train()
    frozen = set(frozen_names(model))
    assert set(seen.moved) == {name for name, _ in model.named_parameters()} - frozen
    held = {id(parameter) for group in trainer.optimizer.param_groups for parameter in group["params"]}
    assert not any(id(parameter) in held for name, parameter in model.named_parameters() if name in frozen)


def test_updates_are_counted_not_micro_batches(tmp_path):
    model = tiny("bert")
    oelm.apply(model, both(Every(steps=2)))
    moved = movements(model, tmp_path, gradient_accumulation_steps=2, per_device_train_batch_size=2)
    assert moved["bert.encoder.layer.0.attention.self.query.weight"] == [2, 4, 6, 8, 10]


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
def test_gradient_checkpointing_changes_neither_when_nor_whither_weights_move(kind, tmp_path):
    def trained(**settings) -> tuple[dict, dict]:
        transformers.set_seed(0)
        model = tiny(kind)
        oelm.apply(model, both(Every(steps=3), share=0.5))
        return movements(model, tmp_path, **settings), model.state_dict()

    moved, plain = trained()
    moved_again, checkpointed = trained(gradient_checkpointing=True)
    assert moved == moved_again
    for name, value in plain.items():
        torch.testing.assert_close(checkpointed[name], value, atol=1e-6, rtol=0, msg=name)


@pytest.mark.parametrize("moves", [After(fraction=0.6), Before(fraction=0.6), Every(steps=4)])
def test_a_resumed_training_equals_an_uninterrupted_one(moves, tmp_path):
    def adapted():
        model = tiny("gpt2")
        oelm.apply(model, both(moves, start="head_orthogonal", share=0.5))
        return model

    whole = adapted()
    trainer_of(whole, tmp_path / "whole", save_strategy="steps", save_steps=5).train()
    resumed, seen = adapted(), Movements()
    trainer = trainer_of(resumed, tmp_path / "whole", seen)
    trainer.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-5"))
    assert trainer.state.global_step == STEPS
    names = governed(resumed)
    schedule = {After: [7, 8, 9, 10], Before: [6], Every: [8]}[type(moves)]
    assert all(seen.moved[name] == schedule for name in names)
    for (name, one), (_, other) in zip(whole.named_parameters(), resumed.named_parameters(), strict=True):
        assert torch.equal(one, other), name


def test_a_checkpoint_of_the_trainer_is_a_folder_that_load_reads(tmp_path):
    model = tiny("bert")
    oelm.apply(model, "frozen_half")
    trainer_of(model, tmp_path, save_strategy="steps", save_steps=STEPS).train()
    again = oelm.load(tmp_path / f"checkpoint-{STEPS}")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_the_best_weights_may_come_back_at_the_end(tmp_path):
    model = tiny("bert")
    oelm.apply(model, both(Before(fraction=0.5), start="head_orthogonal"))
    trainer_of(
        model,
        tmp_path,
        learning_rate=0.3,  # it gets worse from the first update on
        save_strategy="steps",
        save_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        load_best_model_at_end=True,
    ).train()


def test_a_second_training_of_the_same_model_keeps_its_schedule(tmp_path):
    model = tiny("bert")
    oelm.apply(model, both(Before(fraction=0.2)))
    for turn in ("first", "second"):
        moved = movements(model, tmp_path / turn)
        assert moved["bert.encoder.layer.0.attention.self.query.weight"] == [1, 2], turn


def test_thawed_by_hand_is_found_at_the_next_save(tmp_path):
    class Meddler(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, model, **kwargs):
            with torch.no_grad():
                model.bert.encoder.layer[0].attention.self.query.weight[0, 0] += 1

    model = tiny("bert")
    oelm.apply(model, "frozen_head_orthogonal")
    with pytest.raises(FrozenWeightChanged, match=r"bert\.encoder\.layer\.0\.attention\.self\.query\.weight"):
        trainer_of(model, tmp_path, Meddler(), save_strategy="steps", save_steps=4).train()


def test_what_freezing_cannot_govern_is_refused(tmp_path):
    with pytest.raises(oelm.UserError, match="no arm was applied"):
        trainer_of(tiny("bert"), tmp_path).train()
    model = tiny("bert")
    oelm.apply(model, "late_unfreeze")
    trainer = trainer_of(model, tmp_path)
    trainer.optimizer = torch.optim.AdamW(model.classifier.parameters())
    missing = r"the optimizer is missing weights .*layer\.0\.attention\.self\.query\.weight"
    with pytest.raises(oelm.UserError, match=missing):
        trainer.train()
