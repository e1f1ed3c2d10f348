"""An arm stored with a model: what the config says, what a load restores, and what it refuses."""

import json
import warnings
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from trainers import trainer_of

import oelm
from oelm.core.model.freezing import FrozenWeightChanged
from oelm.core.model.parameters import frozen_names, rules
from oelm.core.model.projection import SplitLinear
from oelm.core.moves import Every, Never
from oelm.core.parts import AS_GIVEN, ROLES, Part, Parts, for_given_weights
from oelm.machine.installation import install_command
from oelm.models.adaptation.families import family_of, sites_of
from small_runs import warm_python
from tiny_transformers import KINDS, VOCABULARY, batch, fine_tuned, tiny

WEIGHTS = "model.safetensors"


def stored(model, folder: Path) -> Path:
    model.save_pretrained(folder)
    assert not list(folder.glob("*.bin"))
    return folder


# ---- Save and load -------------------------------------------------------------------------------------------------


SOME = ("bert", "vit", "gpt2", "llama", "qwen3", "phi3", "bloom", "mixtral")  # every kind of weight and of fusion


@pytest.mark.parametrize("kind", SOME)
def test_a_loaded_model_is_frozen_and_split_as_it_was_stored(kind, tmp_path):
    model = tiny(kind)
    oelm.apply(model, "frozen_half", seed=4)
    fine_tuned(model, 2)
    folder = stored(model, tmp_path)
    plain, information = type(model).from_pretrained(folder, output_loading_info=True)  # reads it too, as a stock model
    assert [information[name] for name in ("missing_keys", "unexpected_keys")] == [set(), set()]
    assert torch.equal(plain.eval()(**batch(model)).logits, model(**batch(model)).logits)
    assert not any(isinstance(module, SplitLinear) for module in plain.modules())
    assert set(load_file(folder / WEIGHTS)) == set(load_file(stored(tiny(kind), tmp_path / "stock") / WEIGHTS))
    again = oelm.load(folder)
    assert type(again) is type(model)
    assert rules(again) == rules(model)
    assert frozen_names(again) == frozen_names(model) != []
    for (name, one), (_, other) in zip(model.named_parameters(), again.named_parameters(), strict=True):
        assert torch.equal(one, other), name
        assert one.requires_grad == other.requires_grad, name
    assert again.config.oelm == model.config.oelm
    fine_tuned(again, 2)
    assert oelm.load(stored(again, tmp_path / "again")).config.oelm == model.config.oelm


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_goes_on_after_a_load_as_if_it_had_not_been_stored(kind, tmp_path):
    """Of all parts it has, every second one rests."""
    model = tiny(kind)
    has = {role for site in sites_of(model, family_of(model)) for role in site.roles}
    resting = [role for role in ROLES if role in has][::2]
    oelm.apply(model, AS_GIVEN.model_copy(update={role: Part(start="keep", moves=Never()) for role in resting}))
    fine_tuned(model, 1)
    again = oelm.load(stored(model, tmp_path))
    assert rules(again) == rules(model)
    assert frozen_names(again) == [name for name, parameter in again.named_parameters() if not parameter.requires_grad]
    assert len(again.config.oelm["frozen_digests"]) >= len(frozen_names(again)) > 0
    assert torch.equal(again(**batch(again)).logits, model(**batch(model)).logits)
    for each in (model, again):
        torch.manual_seed(0)
        fine_tuned(each, 1)
    continued = again.state_dict()
    assert [name for name, value in model.state_dict().items() if not torch.equal(continued[name], value)] == []


def test_a_changed_embedding_is_refused_whatever_class_reads_the_folder(tmp_path):
    model = tiny("gpt2")
    oelm.apply(model, "frozen_embedding")
    folder = stored(model, tmp_path)
    assert frozen_names(oelm.load(folder, transformers.GPT2Model)) == ["wte.weight"]
    weights = load_file(folder / WEIGHTS)
    weights["transformer.wte.weight"][7, 0] += 1e-3
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(oelm.UserError, match=r"frozen weights are not .*: wte\.weight \("):
        oelm.load(folder)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_a_model_that_was_resized_after_its_arm_is_refused_as_such(kind, tmp_path):
    model = tiny(kind)
    oelm.apply(model, "frozen_embedding")
    model.resize_token_embeddings(VOCABULARY + 3)
    resized = rf"was resized after the arm .*was \[{VOCABULARY}, 32\], is \[{VOCABULARY + 3}, 32\]"
    with pytest.raises(oelm.UserError, match=resized) as caught:
        oelm.load(stored(model, tmp_path))
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(FrozenWeightChanged, match=resized):
        trainer_of(model, tmp_path).train()
    first = tiny(kind)
    first.resize_token_embeddings(VOCABULARY + 3)
    oelm.apply(first, "frozen_embedding")
    assert frozen_names(oelm.load(stored(first, tmp_path / "first"))) != []


def test_a_schedule_warns_when_it_is_applied_and_loaded_that_it_needs_its_callback(tmp_path):
    model = tiny("bert")
    with pytest.warns(UserWarning, match=r"follow a schedule; without oelm\.FreezeCallback\(\)"):
        oelm.apply(model, "late_unfreeze")
    with pytest.warns(UserWarning, match="follow a schedule"):
        oelm.load(stored(model, tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        oelm.apply(tiny("bert"), "frozen_up")


def test_another_class_may_read_the_folder(tmp_path):
    model = tiny("bert", "BertForMaskedLM")
    oelm.apply(model, "frozen_head_orthogonal")
    again = oelm.load(stored(model, tmp_path), transformers.AutoModelForSequenceClassification, num_labels=7)
    assert again.config.num_labels == 7
    assert len(frozen_names(again)) == len(frozen_names(model))


def test_the_type_asked_for_is_set_after_the_check(tmp_path):
    model = tiny("llama").double()
    oelm.apply(model, "frozen_head_orthogonal")
    folder = stored(model, tmp_path)
    assert oelm.load(folder).dtype == torch.float64
    cast = oelm.load(folder, dtype=torch.bfloat16)
    assert cast.dtype == torch.bfloat16
    assert oelm.load(stored(cast, tmp_path / "cast")).dtype == torch.bfloat16


# ---- What the config says ------------------------------------------------------------------------------------------


def test_the_config_says_what_was_applied(tmp_path):
    model = tiny("bert")
    oelm.apply(model, "oelm_freeze", seed=3)
    field = json.loads((stored(model, tmp_path) / "config.json").read_text())["oelm"]
    assert (field["format_version"], field["arm"], field["seed"]) == (2, "frozen_head_orthogonal", 3)
    assert Parts.model_validate(field["parts"]) == oelm.arm("frozen_head_orthogonal", kind="encoder").parts
    assert sorted(field["frozen_digests"]) == [
        f"layer.{layer}.attention.self.{module}.{leaf}"
        for layer in (0, 1)
        for module in ("key", "query")
        for leaf in ("bias", "weight")
    ]


@pytest.mark.parametrize("arm", ["frozen_orthogonal_repaired", oelm.arm("frozen_orthogonal_repaired")])
def test_what_needs_another_forward_pass_is_refused_by_name(arm):
    with pytest.raises(
        oelm.UserError, match=r"only oelm's own GPT can have a trained temperature per head; a residual"
    ):
        oelm.apply(tiny("bert"), arm)


def test_a_spec_of_ones_own_is_stored_whole(tmp_path):
    spec = for_given_weights(
        Parts(query=Part(start="xavier", gain=2.0, moves=Every(steps=3)), key=Part(start="keep", moves=Never()))
    )
    model = tiny("qwen2")
    done = oelm.apply(model, spec)
    assert model.config.oelm["arm"] == "custom"
    again = oelm.load(stored(model, tmp_path))
    assert Parts.model_validate(again.config.oelm["parts"]) == spec
    assert rules(again) == rules(model)
    assert done.frozen == sum(p.numel() for p in again.parameters() if not p.requires_grad)


@pytest.mark.parametrize("name", ["frozen_head_orthogonal", "frozen_half", "frozen_pretrained", "late_unfreeze"])
def test_a_folder_of_format_1_which_spoke_of_attention_is_still_loaded(name, tmp_path):
    model = tiny("bert")
    oelm.apply(model, name)
    folder = stored(model, tmp_path)
    field = dict(model.config.oelm)
    parts = field.pop("parts") | {role: Part().model_dump(mode="json") for role in ("value", "output")}
    four = {role: parts[role] for role in ("query", "key", "value", "output")}
    older = {role: {key: part[key] for key in part if key != "layers"} for role, part in four.items()}
    change_config(folder, oelm=field | {"format_version": 1, "attention": older})
    again = oelm.load(folder)
    assert rules(again) == rules(model)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())


# ---- What is refused -----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path) -> Path:
    model = tiny("bert")
    oelm.apply(model, "frozen_head_orthogonal")
    return stored(model, tmp_path / "stored")


def test_a_changed_frozen_weight_is_refused_by_name_and_a_trained_one_is_not(folder):
    weights = load_file(folder / WEIGHTS)
    for part, change in (("value", 1.0), ("key", 1e-7)):
        oelm.load(folder)
        weights[f"bert.encoder.layer.1.attention.self.{part}.weight"][0, 0] += change
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    with pytest.raises(oelm.UserError, match=r"frozen weights are not .*: layer\.1\.attention\.self\.key\.weight \("):
        oelm.load(folder)


def change_config(folder: Path, **fields: object) -> None:
    tree = json.loads((folder / "config.json").read_text()) | fields
    (folder / "config.json").write_text(json.dumps({key: value for key, value in tree.items() if value is not None}))


def test_folders_that_cannot_be_loaded_are_refused_in_one_line(folder, tmp_path):
    def refusal(where: Path) -> str:
        with pytest.raises(oelm.UserError) as caught:
            oelm.load(where)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "no such folder" in refusal(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "has no config.json" in refusal(tmp_path / "empty")
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:1000])
    assert "its weights cannot be read" in refusal(folder)
    (folder / WEIGHTS).write_bytes(content)
    index = folder / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"a": "../model.safetensors"}}')
    assert "not an index of safetensors files" in refusal(folder)
    index.unlink()
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
    assert "contains only pickled weights (pytorch_model.bin)" in refusal(folder)
    (folder / "pytorch_model.bin").unlink()
    assert "contains no weights" in refusal(folder)
    (folder / WEIGHTS).touch()
    change_config(folder, oelm={"format_version": 99})
    assert "not format_version 1" in refusal(folder)
    change_config(
        folder,
        oelm={"format_version": 1, "seed": 0, "attention": {"query": {"start": "sideways"}}, "frozen_digests": {}},
    )
    assert "oelm: damaged" in refusal(folder)
    change_config(folder, oelm={"format_version": 1, "seed": 0, "attention": {}})
    assert "oelm: damaged: 'frozen_digests'" in refusal(folder)
    change_config(folder, oelm=None)
    assert "has no field oelm" in refusal(folder)
    (folder / "config.json").write_text("[]")
    assert "damaged: contains a list" in refusal(folder)


def test_without_transformers_one_line_says_how_to_get_it(folder):
    code = (
        "import sys; sys.modules['transformers'] = None\n"
        "import oelm\n"
        f"acts = lambda: oelm.FreezeCallback, lambda: oelm.OELMModel, lambda: oelm.load({str(folder)!r})\n"
        "for act in acts:\n"
        "    try:\n        act()\n"
        "    except ImportError as error:\n        print(error)\n"
    )
    done = warm_python(code)
    assert done.stdout.splitlines() == 3 * [
        f"models of the transformers library need it installed: {install_command('hf')}"
    ]


# ---- Diagnosis -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bert", "gpt2", "llama"])
@pytest.mark.parametrize("name", ["frozen_head_orthogonal", "frozen_half", "late_unfreeze"])
def test_the_diagnosis_of_an_adapted_model_tells_the_truth(kind, name):
    model = tiny(kind)
    done = oelm.apply(model, name)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, weight_decay=0.1)

    def step() -> None:
        model(**batch(model)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    diagnosis = oelm.diagnose(model, optimizer=optimizer, step=step)
    assert diagnosis.problems == ()
    for totals in diagnosis.counts.values():
        assert (totals.trainable, totals.frozen) == (done.trainable, done.frozen)
    assert {entry.name for entry in diagnosis.entries if entry.should_move == "never"} == set(frozen_names(model))


def test_the_diagnosis_of_a_thawed_model_says_so(folder):
    model = oelm.load(folder)
    model.requires_grad_(True)
    assert any("query" in problem for problem in map(str, oelm.diagnose(model).problems))
