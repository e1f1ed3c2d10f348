"""The Auto classes find our model once oelm is imported, in whichever order, and importing oelm stays light."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="Hugging Face transformers is not installed: pip install 'oelm[hf]'")

import oelm
from small_runs import warm_python

LOADED = """
assert type(AutoConfig.from_pretrained(sys.argv[1])).__name__ == "OELMConfig"
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
assert type(model).__name__ == "OrthogonalELMTransformer", type(model)
assert not model.gpt.blocks[0].attention.query.weight.requires_grad
"""
ORDERS = {
    "oelm first": "import oelm\nfrom transformers import AutoConfig, AutoModelForCausalLM",
    "oelm last": "from transformers import AutoConfig, AutoModelForCausalLM\nimport oelm",
    # which imports the Auto classes half-way through its own import
    "generation first": "import oelm, transformers.generation.utils\n"
    "from transformers import AutoModelForCausalLM, AutoConfig",
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    config = oelm.OELMConfig(vocabulary=11, seq_len=8, d_model=8, num_layers=1, num_heads=2)
    oelm.OrthogonalELMTransformer(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("order", ORDERS)
def test_auto_classes_load_our_folder_in_any_order_of_imports(order: str, saved: Path) -> None:
    done = warm_python(f"import sys\n{ORDERS[order]}\n{LOADED}", str(saved))
    assert done.returncode == 0, done.stderr


def test_where_transformers_is_absent_nothing_happens() -> None:
    code = (
        "import sys; sys.modules['transformers'] = None\nimport oelm\n"
        "try:\n    import transformers.models.auto.configuration_auto\n"
        "except ModuleNotFoundError as error:\n    sys.exit('oelm' in str(error))\n"
        "sys.exit(1)"
    )
    done = warm_python(code)
    assert done.returncode == 0, done.stderr


def test_transformers_loads_other_models_as_ever() -> None:
    code = (
        "import sys, oelm\nassert 'transformers' not in sys.modules\n"
        "from transformers import AutoConfig\n"
        "assert type(AutoConfig.for_model('gpt2')).__name__ == 'GPT2Config'\n"
        "assert 'oelm.models.gpt' not in sys.modules\n"
        "assert not [each for each in sys.meta_path if type(each).__module__.startswith('oelm')]"
    )
    done = warm_python(code)
    assert done.returncode == 0, done.stderr
