"""What a run reports is what its weights give, bit for bit; what was changed is found, however well its digests fit."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from forging import change_weight, edit, last_checkpoint, report, sealed_again

from oelm.core.config import stored_fingerprint
from oelm.core.measures import LOSS, MEASURES
from oelm.execution.verification.recomputing import Recomputation
from oelm.run.directory import RunDirectory
from oelm.run.training.next_token import NextToken
from stored_runs import with_attention

KINDS = ("plain", "curve", "frozen", "scheduled")


def verdict(run: Path, **settings):
    return Recomputation(**settings).verdict(run)


def reported(run: Path) -> float:
    return json.loads((run / "experiment_result.json").read_text())["val_loss"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_untouched_run_is_recomputed_to_the_last_bit(kind, trained):
    said = verdict(trained[kind])
    assert (said.state, said.reason, said.other_machine, said.unsealed) == ("bit-equal", "", (), False)
    assert said.recomputed == said.reported == reported(trained[kind])


def test_the_shares_of_several_processes_are_added_in_their_order(by_several):
    said = verdict(by_several)
    assert (said.state, said.reason, said.other_machine) == ("bit-equal", "", ())
    assert said.recomputed == reported(by_several)


def test_the_best_model_decides_nothing(copy_of):
    run = copy_of("plain")
    shutil.rmtree(run / "best")
    assert verdict(run).state == "bit-equal"


# ---- Changed -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "change"), [("plain", lambda loss: math.nextafter(loss, 0)), ("curve", lambda loss: loss * 0.99)]
)
def test_a_changed_loss_is_found_where_every_digest_was_forged_to_fit(kind, change, copy_of):
    run = copy_of(kind)
    before = reported(run)
    report(run, change(before))
    assert verdict(run).state == "damaged"  # while the digests do not fit
    sealed_again(run)
    said = verdict(run)
    assert (said.state, said.recomputed, said.reported) == ("differs", before, change(before))


@pytest.mark.parametrize("name", ["token_embedding.weight", "blocks.3.attention.value.weight"])
def test_a_changed_weight_in_a_sealed_checkpoint_is_found(name, copy_of):
    run = copy_of("plain")
    change_weight(run, name, by=1e-3)
    said = verdict(run)
    assert said.state == "damaged"
    assert f"{last_checkpoint(run) / 'model.safetensors'}: damaged: does not match its SHA-256" in said.reason
    sealed_again(run)
    assert verdict(run).state == "differs"


@pytest.mark.parametrize(("factor", "state"), [(1.0, "bit-equal"), (1.001, "differs")])
def test_one_more_measure_is_recomputed_too(factor, state, copy_of, monkeypatch):
    bits = replace(LOSS, key="bits", shown_key="bits", value_of=lambda result: result.get("bits"))
    monkeypatch.setitem(MEASURES, "bits", bits)
    seen = NextToken._seen

    def with_bits(self, loss, sequences):
        validation = seen(self, loss, sequences)
        return replace(validation, result=validation.result | {"bits": loss / math.log(2)})

    monkeypatch.setattr(NextToken, "_seen", with_bits)
    run = copy_of("plain")
    edit(run / "experiment_result.json", lambda tree: tree.update(bits=factor * tree["val_loss"] / math.log(2)))
    sealed_again(run)
    said = verdict(run)
    assert said.state == state
    assert said.reason.startswith("" if state == "bit-equal" else "bits is ")


def test_a_checkpoint_that_was_sealed_again_alone_is_not_the_run_s(copy_of):
    run = copy_of("plain")
    seal = (run / "seal.json").read_bytes()
    change_weight(run, "final_norm.weight", by=1e-3)
    sealed_again(run)
    (run / "seal.json").write_bytes(seal)
    said = verdict(run)
    assert said.state == "damaged"
    assert "manifest.json: damaged: changed since the run was sealed" in said.reason


def test_a_changed_frozen_weight_is_found_by_its_digest_and_by_its_seed(copy_of):
    run = copy_of("frozen")
    change_weight(run, "blocks.0.attention.query.weight", by=1e-3)  # of the first head, which rests
    sealed_again(run)
    said = verdict(run)
    assert said.state == "damaged"
    assert "frozen weight changed between steps 0 and 12" in said.reason


@pytest.mark.parametrize("key", ["last_val_loss", "best_step", "clipped_steps"])
def test_a_checkpoint_that_tells_another_story_than_the_result_is_damaged(key, copy_of):
    run = copy_of("plain")
    edit(last_checkpoint(run) / "state.json", lambda tree: tree["progress"].update({key: 1}))
    sealed_again(run)
    said = verdict(run)
    assert said.state == "damaged"
    assert "but the last checkpoint says" in said.reason


def test_counts_of_parameters_are_those_of_the_model(copy_of):
    run = copy_of("frozen")
    edit(run / "parameters.json", lambda tree: tree.update(weight_bytes=tree["weight_bytes"] + 4))
    sealed_again(run)
    said = verdict(run)
    assert (said.state, said.reason.endswith("weight_bytes is not that of the last checkpoint")) == ("damaged", True)


def test_an_edit_without_a_new_seal_is_damage_named_by_file(copy_of):
    run = copy_of("plain")
    edit(run / "environment.json", lambda tree: tree.update(threads=2))
    said = verdict(run)
    assert said.state == "damaged"
    assert said.reason == f"{run / 'environment.json'}: damaged: changed since the run was sealed"


@pytest.mark.parametrize("changes", [{"compile": None}, {"precision": "half"}])
def test_an_environment_that_no_run_had_is_damaged(changes, copy_of):
    run = copy_of("plain")
    edit(run / "environment.json", lambda tree: tree.update(changes))
    sealed_again(run)
    assert verdict(run).state == "damaged"


# ---- Not recomputable ----------------------------------------------------------------------------------------------


def test_without_its_last_checkpoint_a_run_is_not_recomputable(copy_of):
    run = copy_of("plain")
    shutil.rmtree(last_checkpoint(run))
    said = verdict(run)
    assert said.state == "not recomputable"
    assert "no checkpoint of the last step, 12 (only step-0000" in said.reason
    shutil.rmtree(run / "checkpoints")
    assert verdict(run).reason == "no checkpoint of the last step, 12 (none found)"
    assert not verdict(run).is_failure


def test_a_checkpoint_of_a_later_step_is_nobody_s(copy_of):
    run = copy_of("plain")
    shutil.copytree(last_checkpoint(run), RunDirectory(run).checkpoint_folder(13))
    said = verdict(run)
    assert said.state == "damaged"
    assert "step-000013: damaged: is of a later step than the last, 12" in said.reason


def test_data_that_are_gone_or_others_are_said_and_data_elsewhere_are_found(copy_of, token_folder, tmp_path):
    run = copy_of("plain")
    moved = Path(shutil.copytree(token_folder, tmp_path / "moved"))
    edit(run / "config.json", lambda tree: tree.update(data=str(tmp_path / "gone")))
    sealed_again(run)
    said = verdict(run)
    assert said.state == "not recomputable"
    assert f"data: {tmp_path / 'gone'}: no prepared data there" in said.reason
    assert verdict(run, data=moved).state == "bit-equal"
    content = bytearray((moved / "val.bin").read_bytes())
    content[0] ^= 1
    (moved / "val.bin").write_bytes(content)
    said = verdict(run, data=moved)
    assert said.state == "not recomputable"
    assert "the run used" in said.reason


# ---- Another kind of machine ---------------------------------------------------------------------------------------

OTHERS = {
    "processor": {"processor": "Another"},
    "sources": {"source_digest": "0" * 64},
    "device": {"device": "cuda:1"},
    "threads": {"threads": 5000},
    "determinism": {"deterministic": False},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_on_another_kind_of_machine_a_tolerance_is_stated_with_its_reason(changes, copy_of):
    run = copy_of("plain")
    before = reported(run)
    edit(run / "environment.json", lambda tree: tree.update(changes))
    report(run, before * (1 + 1e-7))
    sealed_again(run)
    said = verdict(run)
    assert said.state == "within tolerance"
    assert "tolerance 1e-05 of it, because this is another kind of machine (" in said.line()
    report(run, before * (1 + 1e-4))
    sealed_again(run)
    said = verdict(run)
    assert said.state == "differs"
    assert said.reason == "apart by 0.0001 of it"


# ---- Earlier formats -----------------------------------------------------------------------------------------------


def test_a_run_of_the_format_before_the_seal_is_verified_and_named_unsealed(copy_of):
    """Its config speaks of attention, its counts have the older names of roles."""
    run, older = copy_of("curve"), {"up": "feed_forward_up", "down": "feed_forward_down"}
    edit(run / "config.json", lambda tree: tree.update(with_attention(tree), format_version=2))
    config = json.loads((run / "config.json").read_text())
    digest = json.loads((run / "environment.json").read_text())["data_digest"]
    known = stored_fingerprint(config, data_digest=digest)
    edit(run / "experiment_result.json", lambda tree: tree.update(fingerprint=known))
    edit(
        run / "parameters.json",
        lambda tree: [part.update(role=older.get(part["role"], part["role"])) for part in tree["parts"]],
    )
    (run / "seal.json").unlink()
    said = verdict(run)
    assert (said.state, said.unsealed) == ("bit-equal", True)
    assert said.line().startswith("bit-equal (unsealed); ")
    report(run, reported(run) * 0.999)
    sealed_again(run)
    (run / "seal.json").unlink()
    assert (verdict(run).state, verdict(run).unsealed) == ("differs", True)


# ---- Arithmetic that takes long to set up --------------------------------------------------------------------------


@pytest.mark.trial
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_compiled_run_is_recomputed_to_the_last_bit(precision, token_folder, tmp_path):
    from oelm.run.training.run import train
    from small_runs import quiet_execution, small_run

    run = small_run("late_unfreeze", data=token_folder, steps=12, final_validation_sequences=9, validation_sequences=6)
    train(run, quiet_execution(precision=precision, compile="on"), out=tmp_path / "run")
    assert verdict(tmp_path / "run").state == "bit-equal"
