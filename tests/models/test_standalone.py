"""The generated modeling file: our classes without oelm, the same function bit for bit."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="Hugging Face transformers is not installed: pip install 'oelm[hf]'")

from oelm.core.arms import GPT_ARMS
from oelm.models.gpt import OELMConfig, OrthogonalELMTransformer
from oelm.models.standalone import FILE, modeling_file

SIZES = {"vocabulary": 31, "seq_len": 16, "d_model": 32, "num_layers": 2, "num_heads": 4, "d_ff": 64}


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The file, imported from a folder of its own."""
    path = tmp_path_factory.mktemp("generated") / FILE
    path.write_text(modeling_file("1.2.3"))
    spec = importlib.util.spec_from_file_location("generated_modeling_oelm", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_the_file_imports_nothing_of_ours_and_says_what_it_needs(generated: ModuleType) -> None:
    source = Path(str(generated.__file__)).read_text()
    nodes = list(ast.walk(ast.parse(source)))
    names = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    packages = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
    assert packages == {"pydantic", "safetensors", "torch", "transformers"}
    assert f"Needs {', '.join(sorted(packages))}." in source
    assert "oelm 1.2.3" in source
    title, _, body = source.partition('"""\n\n')
    assert hashlib.sha256(body.encode()).hexdigest() in title
    assert modeling_file.__wrapped__("1.2.3") == source


@pytest.mark.parametrize("arm", ["trained", "frozen_half", "frozen_hadamard", "frozen_orthogonal_repaired"])
@pytest.mark.parametrize("more", [{"positions": "learned", "tied": False}, {"positions": "rotary"}])
def test_the_generated_class_is_the_same_function_bit_for_bit(arm: str, more: dict[str, Any], generated: Any) -> None:
    tree = {name: getattr(GPT_ARMS[arm], name).model_dump(mode="json") for name in ("parts", "scores", "repairs")}
    ours = OrthogonalELMTransformer(OELMConfig(**SIZES, **tree, **more)).eval()
    theirs = generated.OrthogonalELMTransformer(generated.OELMConfig(**SIZES, **tree, **more)).eval()
    theirs.load_state_dict(ours.state_dict())
    tokens = torch.randint(31, (2, 9))
    assert torch.equal(theirs(tokens).logits, ours(tokens).logits)
    frozen = [{name for name, value in each.named_parameters() if not value.requires_grad} for each in (ours, theirs)]
    assert frozen[0] == frozen[1]
