"""Fine-tuning an encoder: the laws of our own runs hold for it, and its best model is one that transformers loads."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from oelm.core.config import Run
from oelm.core.settings import load_settings
from oelm.data.batches import padded
from oelm.data.folders import open_data
from oelm.data.prepare_sentences import prepare_sentences
from oelm.data.sentences import open_sentences
from oelm.machine.errors import UserError
from oelm.run.directory import RunDirectory
from oelm.run.stored_models.loading import load_stored
from oelm.run.training.assembly import assembled
from oelm.run.training.classification import as_seen_by_all
from oelm.run.training.device import resolve_machine
from oelm.run.training.distributed import World
from oelm.run.training.loop import optimization_steps
from oelm.run.training.run import run_with_data, train
from operations import Operations
from sentence_sources import nli_folder
from small_encoders import TYPES, loadable_encoder
from small_runs import quiet_execution, torchrun

transformers = pytest.importorskip("transformers", reason="needs pip install 'oelm[hf]'")


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """Prepared sentences for a tiny encoder of each family."""
    folder = tmp_path_factory.mktemp("sentences")
    source = nli_folder(folder / "nli", train=60, val=22, tune=9)
    for kind in TYPES:
        encoder = loadable_encoder(folder / f"{kind}-encoder", kind)
        prepare_sentences(str(source), out=folder / kind, encoder=str(encoder), task="pairs")
    return {kind: folder / kind for kind in TYPES}


def fine_tuning(data: Path, arm: str = "fine_tuned", **changes: object) -> Run:
    given = {"steps": 8, "batch_size": 7, "learning_rate": 1e-2, "validate_every": 4, "model.dropout": 0.0} | changes
    assignments = [f"{key}={value}" for key, value in given.items()]
    return load_settings(preset="fine-tuning", arm=arm, data=str(data), assignments=assignments).run


def stepped(run: Run, **execution: object):
    run, data = run_with_data(run)
    machine, _ = resolve_machine(quiet_execution(**execution), run, local_rank=0, world_size=1)
    objective, optimizer, schedule = assembled(run, data, machine=machine, world=World())
    before = {name: value.detach().clone() for name, value in objective.model.named_parameters()}
    steps = optimization_steps(objective, optimizer, run, schedule=schedule, machine=machine, world=World())
    losses = [step.loss for step in steps]
    return objective, before, losses


def test_gradients_depend_neither_on_the_micro_batch_nor_on_its_padding(folders):
    run = fine_tuning(folders["roberta"])
    whole, _, whole_losses = stepped(run, precision="float64", micro_batch_size=7)
    part, _, part_losses = stepped(run, precision="float64", micro_batch_size=2)
    assert part_losses == pytest.approx(whole_losses, rel=1e-11)
    for (name, one), other in zip(whole.model.named_parameters(), part.model.parameters(), strict=True):
        torch.testing.assert_close(other, one, rtol=0, atol=1e-9, msg=name)


@pytest.mark.parametrize(
    ("kind", "arm"),
    [("bert", "frozen_half"), ("roberta", "frozen_head_orthogonal"), ("distilbert", "frozen_pretrained")],
)
def test_only_the_frozen_part_of_queries_and_keys_stays(kind, arm, folders):
    objective, before, _ = stepped(fine_tuning(folders[kind], arm, **{"training.weight_decay": 0.1}))
    roles = {name: objective.role_of(name) for name in before}
    still = {name for name, value in objective.model.named_parameters() if torch.equal(value, before[name])}
    frozen = {name for name, value in objective.model.named_parameters() if not value.requires_grad}
    assert {roles[name] for name in frozen} == {"query", "key"}
    unused = {name for name in still - frozen if before[name].dim() == 1 and not before[name].any()}
    assert frozen <= still
    assert still - frozen - unused == set()


def test_other_parts_of_an_encoder_stay_as_pretrained(folders):
    given = load_file(folders["distilbert"].parent / "distilbert-encoder" / "model.safetensors")
    for arm, role in ("frozen_up", "up"), ("frozen_embedding", "token_embedding"), ("frozen_norms", "norm"):
        objective, before, _ = stepped(fine_tuning(folders["distilbert"], arm, **{"training.weight_decay": 0.1}))
        frozen = {name for name, value in objective.model.named_parameters() if not value.requires_grad}
        assert frozen == {name for name in before if objective.role_of(name) == role}
        for name in frozen:
            assert torch.equal(objective.model.get_parameter(name), before[name])
            assert torch.equal(before[name], given[name.removeprefix("distilbert.")])


def test_arms_of_one_seed_differ_in_queries_and_keys_alone(folders):
    parts = {}
    for arm in ("fine_tuned", "frozen_pretrained", "frozen_orthogonalised", "frozen_head_orthogonal", "frozen_normal"):
        run, data = run_with_data(fine_tuning(folders["bert"], arm))
        machine, _ = resolve_machine(quiet_execution(), run, local_rank=0, world_size=1)
        objective, *_ = assembled(run, data, machine=machine, world=World())
        parts[arm] = objective.model.state_dict()
    stock = parts["fine_tuned"]
    differing = {
        arm: {name for name, value in state.items() if not torch.equal(value, stock[name])}
        for arm, state in parts.items()
    }
    assert differing["frozen_pretrained"] == set()
    for arm in ("frozen_orthogonalised", "frozen_head_orthogonal", "frozen_normal"):
        assert differing[arm]
        assert all(".query." in name or ".key." in name for name in differing[arm])


def test_a_run_leaves_its_predictions_and_a_model_that_transformers_loads(folders, tmp_path):
    run = fine_tuning(folders["bert"], "frozen_orthogonalised", steps=4, validate_every=4)
    result = train(run, quiet_execution(), out=tmp_path / "run").result
    directory = RunDirectory(tmp_path / "run")
    said = json.loads(directory.predictions_file.read_text())
    held_out = open_sentences(folders["bert"]).splits["val"]
    assert said["labels"] == held_out.labels.tolist()
    assert result["examples"] == len(held_out) == 22
    assert result["accuracy"] == pytest.approx(np.mean(np.equal(said["labels"], said["predicted"])))
    assert "perplexity" not in result
    model = transformers.AutoModelForSequenceClassification.from_pretrained(directory.best).eval()
    batch = padded(held_out, np.arange(22), padding=0, token_types=True)
    with torch.no_grad():
        logits = model(**{name: torch.from_numpy(values) for name, values in batch.items()}).logits
    assert logits.argmax(dim=1).tolist() == said["predicted"]
    assert list(model.config.id2label.values()) == list(open_sentences(folders["bert"]).labels)


def test_a_run_that_was_cut_off_ends_with_the_same_bits(folders, tmp_path):
    """With dropout, which must be drawn again as it was."""
    run = fine_tuning(folders["bert"], "every_n", **{"model.dropout": 0.1, "steps": 12})
    execution = quiet_execution(checkpoint_every=3, keep_checkpoints=9)
    train(run, execution, out=tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    cut = RunDirectory(tmp_path / "cut")
    for folder in cut.stored_checkpoints()[2:]:
        shutil.rmtree(folder)
    for file in (cut.result_file, cut.seal_file, cut.status_file):
        file.unlink()
    outcome = train(run, execution, out=cut.path)
    assert outcome.result["resumes"] == 1
    whole, resumed = (
        load_file(RunDirectory(tmp_path / name).checkpoint_folder(12) / "model.safetensors")
        for name in ("whole", "cut")
    )
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert (tmp_path / "whole" / "predictions.json").read_bytes() == cut.predictions_file.read_bytes()


def test_two_processes_equal_one(folders, tmp_path):
    """7 pairs on 2 processes: parts of different size."""
    run = fine_tuning(folders["bert"], "frozen_half")
    train(run, quiet_execution(precision="float64"), out=tmp_path / "one")
    assignments = ("steps=8", "batch_size=7", "learning_rate=0.01", "validate_every=4", "model.dropout=0.0")
    options = [
        word for each in (*assignments, "precision=float64", "device=cpu", "threads=1") for word in ("--set", each)
    ]
    done = torchrun(
        "-m", "oelm", "train", "--preset", "fine-tuning", "--arm", "frozen_half", "--data", str(folders["bert"]),
        "--out", str(tmp_path / "two"), *options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    one, two = (
        load_file(RunDirectory(tmp_path / name).checkpoint_folder(8) / "model.safetensors") for name in ("one", "two")
    )
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=0, atol=1e-10)
    assert (tmp_path / "one" / "predictions.json").read_bytes() == (tmp_path / "two" / "predictions.json").read_bytes()


def test_an_encoder_may_start_at_random(folders):
    run, data = run_with_data(fine_tuning(folders["bert"], "frozen_head_orthogonal", **{"model.pretrained": "false"}))
    machine, _ = resolve_machine(quiet_execution(), run, local_rank=0, world_size=1)
    first, second = (assembled(run, data, machine=machine, world=World())[0].model.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    given = load_file(folders["bert"].parent / "bert-encoder" / "model.safetensors")
    name = "embeddings.word_embeddings.weight"
    assert not torch.equal(first[f"bert.{name}"], given[name])
    with pytest.raises(UserError, match="pretrained is false"):
        fine_tuning(folders["bert"], "frozen_pretrained", **{"model.pretrained": "false"})


def test_what_does_not_fit_is_one_line(folders, token_folder, tmp_path):
    with pytest.raises(UserError, match=r"model.d_model: 32, but the encoder of .* says 16"):
        run_with_data(fine_tuning(folders["bert"], **{"model.d_model": 32}))
    train(fine_tuning(folders["bert"], steps=1), quiet_execution(), out=tmp_path / "run")
    for place in (tmp_path / "run", tmp_path / "run" / "checkpoints" / "step-000001"):
        with pytest.raises(UserError, match="contains an encoder for sentences, not a language model"):
            load_stored(place)
    with pytest.raises(UserError, match=r"no prepared sentences there .*: oelm prepare "):
        open_data(fine_tuning(tmp_path / "nowhere"))
    moved = tmp_path / "moved"
    shutil.copytree(folders["bert"].parent / "bert-encoder", moved)
    prepare_sentences(str(nli_folder(tmp_path / "nli")), out=tmp_path / "data", encoder=str(moved), task="pairs")
    shutil.rmtree(moved)
    with pytest.raises(UserError, match="the encoder it was prepared for is gone"):
        stepped(fine_tuning(tmp_path / "data"))


def test_what_was_stored_is_frozen_again_and_diagnosed_wherever_it_lies(folders, tmp_path):
    import oelm
    from oelm.run.diagnosis import diagnose_arm, diagnose_stored

    for arm in ("frozen_half", "late_unfreeze"):
        found = diagnose_arm(fine_tuning(folders["bert"], arm, steps=2), data_given=True)
        assert found.problems == (), arm
        assert len(found.counts) == 3
    train(fine_tuning(folders["bert"], "frozen_half", steps=2), quiet_execution(), out=tmp_path / "run")
    directory = RunDirectory(tmp_path / "run")
    frozen = json.loads(directory.parameters_file.read_text())["frozen"]
    model = oelm.load(directory.best)
    assert sum(p.numel() for p in model.parameters() if not p.requires_grad) == frozen > 0
    assert diagnose_stored(directory.path).as_json()["frozen"] == frozen
    for place in (directory.best, directory.checkpoint_folder(2), directory.path):
        assert diagnose_stored(place).healthy
    shutil.rmtree(directory.best)  # as after a stop before the first validation
    assert diagnose_stored(directory.path).healthy
    shutil.rmtree(directory.checkpoints)
    with pytest.raises(UserError, match="has no model: the run ended before it saved one"):
        diagnose_stored(directory.path)


@pytest.mark.parametrize("kind", TYPES)
def test_a_step_and_a_validation_of_an_encoder_have_only_operations_with_a_deterministic_form(kind, folders):
    torch.use_deterministic_algorithms(True)
    try:
        with Operations() as operations:
            stepped(fine_tuning(folders[kind], steps=1, **{"model.dropout": 0.1}))[0].validation()
    finally:
        torch.use_deterministic_algorithms(False)
    assert "embedding_dense_backward" in operations.seen
    assert operations.without_deterministic_form() == []


@pytest.mark.parametrize("kind", TYPES)
def test_the_mask_that_a_gpu_is_given_hides_what_the_encoders_own_hides(kind, folders):
    run, data = run_with_data(fine_tuning(folders[kind]))
    machine, _ = resolve_machine(quiet_execution(precision="float64"), run, local_rank=0, world_size=1)
    objective, _, _ = assembled(run, data, machine=machine, world=World())
    batch = padded(data.splits["train"], np.arange(6), padding=data.pad_id, token_types=run.model.token_types > 1)
    given = {name: torch.from_numpy(values) for name, values in batch.items()}
    assert not given["attention_mask"].bool().all()
    for_a_gpu = given | {"attention_mask": as_seen_by_all(given["attention_mask"])}
    torch.testing.assert_close(
        objective.model(**for_a_gpu).logits, objective.model(**given).logits, rtol=1e-12, atol=1e-12
    )
    hidden = for_a_gpu | {"attention_mask": torch.ones_like(for_a_gpu["attention_mask"])}
    assert not torch.allclose(objective.model(**hidden).logits, objective.model(**given).logits)
