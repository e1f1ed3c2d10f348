"""PEFT beside an arm: adapters train, what rests rests; and what happens where both meet."""

import pytest
import torch
from test_trainer import movements, trainer_of

import oelm
from oelm.core.model.parameters import frozen_names
from tiny_transformers import fine_tuned, tiny

peft = pytest.importorskip("peft", reason="pip install peft")


def with_adapters(model, *targets: str, **settings):
    return peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=list(targets), **settings))


@pytest.mark.parametrize(("kind", "target"), [("bert", "value"), ("llama", "v_proj"), ("gpt2", "c_proj")])
def test_adapters_train_beside_frozen_queries_and_keys(kind, target):
    model = tiny(kind)
    oelm.apply(model, "frozen_half")
    wrapped = with_adapters(model, target, fan_in_fan_out=kind == "gpt2")
    before = {name: parameter.detach().clone() for name, parameter in wrapped.named_parameters()}
    assert len(frozen_names(wrapped)) > 0
    fine_tuned(wrapped, 5)
    for name, parameter in wrapped.named_parameters():
        assert torch.equal(before[name], parameter) == ("lora" not in name), name
    assert oelm.diagnose(wrapped).problems == ()


def test_a_trainer_trains_adapters_and_checks_what_rests(tmp_path):
    model = tiny("bert")
    oelm.apply(model, "frozen_head_orthogonal")
    wrapped = with_adapters(model, "value")
    assert all("lora" in name for name in movements(wrapped, tmp_path))


def test_an_adapter_on_a_frozen_query_moves_what_it_computes_but_not_its_weight(tmp_path):
    model = tiny("bert")
    oelm.apply(model, "frozen_head_orthogonal")
    wrapped = with_adapters(model, "query")
    fine_tuned(wrapped, 5)
    merged = wrapped.merge_and_unload()
    merged.save_pretrained(tmp_path)
    with pytest.raises(oelm.UserError, match=r"frozen weights are not what .*layer\.0\.attention\.self\.query\.weight"):
        oelm.load(tmp_path)


def test_a_schedule_under_peft_is_refused_because_peft_would_not_store_what_moved(tmp_path):
    model = tiny("bert")
    oelm.apply(model, "late_unfreeze")
    with pytest.raises(oelm.UserError, match="the optimizer is missing weights"):
        trainer_of(with_adapters(model, "value"), tmp_path).train()


def test_all_linear_means_every_projection_of_our_own_class_that_is_not_split():
    from oelm.core.arms import GPT_ARMS
    from oelm.models.gpt import OELMConfig, OrthogonalELMTransformer

    sizes = {"vocabulary": 32, "seq_len": 8, "d_model": 8, "num_layers": 1, "num_heads": 2}
    model = OrthogonalELMTransformer(OELMConfig(**sizes, parts=GPT_ARMS["frozen_half"].parts))
    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules="all-linear"))
    adapted = {name.rpartition(".")[2] for name, module in wrapped.named_modules() if hasattr(module, "lora_A")}
    assert adapted == {"value", "output", "up", "down"}


def test_an_arm_and_an_adapter_on_one_projection_are_refused():
    model = tiny("gpt2")
    oelm.apply(model, "frozen_head_orthogonal")
    with pytest.raises(ValueError, match="SplitLinear"):
        with_adapters(model, "c_attn")
    layer = r"base_model\.model\.bert\.encoder\.layer\.0\.attention\.self\.query"
    with pytest.raises(oelm.UserError, match=rf"PEFT has changed it \(adapter layers {layer}.* before PEFT"):
        oelm.apply(with_adapters(tiny("bert"), "query"), "frozen_head_orthogonal")
    with pytest.raises(oelm.UserError, match="apply the arm before PEFT"):  # wherever the adapters are
        oelm.apply(with_adapters(tiny("bert"), "value"), "frozen_up")
