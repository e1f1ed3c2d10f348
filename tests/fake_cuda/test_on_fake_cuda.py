"""Steps on a CUDA device that does not exist: on one device, read for loss and norm alone, the loss within its budget.

One process makes all of them (tests/fake_cuda/steps.py); it sees no numbers, and nothing of what kernels do inside.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FAKE_CUDA = Path(__file__).parent
sys.path.insert(0, str(FAKE_CUDA))

from imaginary import built, missing  # noqa: E402 - beside this file
from steps import ARMS  # noqa: E402

from sentence_sources import nli_folder  # noqa: E402
from small_encoders import loadable_encoder  # noqa: E402
from small_runs import child_environment  # noqa: E402

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

BUDGET = 4.5e9  # bytes of the loss of a step besides its products, at Medium-512, 8 x 512 tokens, bfloat16
TRACED = 2.26e9  # what it is
PASS = 8 * 512 * 50257 * 2  # one over the logits


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    from oelm.data.prepare_sentences import prepare_sentences

    folder = tmp_path_factory.mktemp("fake_cuda")
    source = nli_folder(folder / "nli", train=20, val=8, tune=4)
    encoder = loadable_encoder(folder / "encoder", "bert")
    prepare_sentences(str(source), out=folder / "sentences", encoder=str(encoder), task="pairs")
    command = [sys.executable, str(FAKE_CUDA / "steps.py"), str(built(folder)), str(folder), str(folder / "sentences")]
    ended = subprocess.run(command, capture_output=True, text=True, env=child_environment(), timeout=900, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout)


def test_the_loss_keeps_to_its_budget_and_has_no_pass_more_than_it_needs(report):
    traced = report["loss"]
    assert 0 < traced["bytes"] <= BUDGET
    assert traced["bytes"] <= TRACED + PASS / 2, traced["by_operation"]
    assert traced["passes_over_logits"] == [4]  # read for the largest, for the sum, for the gradient, which is written
    assert {"index_put_", "index_put", "mul_"}.isdisjoint(traced["operations"])


@pytest.mark.parametrize("where", ["inside", "outside"])
def test_one_more_pass_over_the_logits_would_be_seen(report, where):
    assert report[f"loss, a pass more {where}"]["bytes"] > TRACED + PASS / 2


def test_without_a_compiler_the_loss_has_no_hidden_copies_either(report):
    assert {"index_put_", "index_put"}.isdisjoint(report["loss, without compiler"]["operations"])


def test_products_into_another_type_are_those_that_cuda_has(report):
    """Of torch 2.10 or later, which pyproject.toml asks for: factors of one type, a sum of the type that is asked for.
    Before, a sum could only be of the type of the factors."""
    narrow, wide = "torch.bfloat16", "torch.float32"
    assert report["loss"]["products_into_another_type"] == [["aten.mm.dtype_out", narrow, narrow, wide, wide]]
    assert report["loss, without compiler"]["products_into_another_type"] == [  # in chunks
        ["aten.addmm.dtype_out", wide, narrow, narrow, wide, wide],
        ["aten.mm.dtype_out", narrow, narrow, wide, wide],
    ]


@pytest.mark.parametrize("name", [*(f"arm {arm}" for arm in ARMS), "options", "probe", "float32", "encoder"])
def test_a_step_stays_on_the_device_and_only_its_loss_and_norm_are_read(report, name):
    found = report[name]
    assert "error" not in found, found
    assert len(found["host_reads"]) == 2 * len(found["taken"]) == 4, found["host_reads"]
    assert found["computed_on"] == found["state_on"] == ["cuda"]
    assert found["moments"]
    assert "cuda" in found["validated_on"]


def test_a_host_read_a_copy_and_a_tensor_elsewhere_would_be_seen(report):
    assert len(report["a host read"]["host_reads"]) == len(report["a copy from the host"]["host_reads"]) == 6
    assert report["a tensor on the host"]["computed_on"] == ["cpu", "cuda"]


def test_a_checkpoint_goes_on_with_its_moments_on_the_device(report):
    found = report["resume"]
    assert "error" not in found, found
    assert found["taken"] == [2]
    assert found["computed_on"] == found["state_on"] == ["cuda"]


def test_generation_stays_on_the_device(report):
    assert report["generation"] == {"tokens": 20, "computed_on": ["cuda"]}


@pytest.mark.parametrize(("name", "states"), [("compiled, layer by layer", 2), ("compiled, half", 1)])
def test_blocks_have_one_graph_for_each_state_of_requires_grad(report, name, states):
    found = report[name]
    assert "error" not in found, found
    assert found["graphs"] == found["states"] == states
    assert found["graphs_of_the_loss"] == 1
