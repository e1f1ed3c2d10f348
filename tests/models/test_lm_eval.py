"""lm-evaluation-harness scores an export, offline, as we do by hand."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
import torch
import yaml

from oelm.run.stored_models.export import export
from oelm.run.stored_models.loading import StoredModel, load_stored
from small_runs import finished
from warm import Running, WarmServer

BEGINNINGS = ["One morning", "Mia saw a", "The little dog", "She was very", "They went to the", "Then it"]
CHOICES = ["park with her friend", "big red ball", "happy"]


def _logarithm(stored: StoredModel, context: str, ending: str) -> tuple[float, bool]:
    """Log-likelihood of the ending after the context, and whether each of its tokens is the likeliest."""
    tokenizer = stored.tokenizer()
    whole, start = tokenizer.encode(f"{context} {ending}"), len(tokenizer.encode(context))
    with torch.no_grad():
        scores = stored.gpt.logits(stored.gpt(torch.tensor([whole])))[0].double().log_softmax(-1)
    logarithms = [scores[place - 1, whole[place]].item() for place in range(start, len(whole))]
    greedy = all(int(scores[place - 1].argmax()) == whole[place] for place in range(start, len(whole)))
    return sum(logarithms), greedy


@pytest.fixture(scope="module")
def offline(tmp_path_factory):
    """A process that has imported the harness, which takes longest, and not oelm."""
    for name in ("lm_eval", "accelerate", "transformers"):
        pytest.importorskip(name, reason="lm-evaluation-harness is not installed: pip install 'lm_eval[hf]'")
    folder = tmp_path_factory.mktemp("harness")
    variables = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "cache")}
    server = WarmServer(folder, modules="lm_eval.evaluator lm_eval.tasks lm_eval.models.huggingface", **variables)
    yield server
    server.close()


@pytest.fixture(scope="module")
def tasks(offline, tmp_path_factory):
    """Two local tasks, one for each way the harness asks a language model."""
    folder = tmp_path_factory.mktemp("tasks")
    lines = [{"text": text, "label": number % 3, "choices": CHOICES} for number, text in enumerate(BEGINNINGS)]
    (folder / "lines.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    common = {
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "lines.jsonl")}},
        "test_split": "test",
        "doc_to_text": "{{text}}",
    }
    choice = {"task": "endings", "output_type": "multiple_choice", "doc_to_choice": "{{choices}}"}
    choice |= {"doc_to_target": "{{label}}", "metric_list": [{"metric": "acc"}]}
    likelihood = {"task": "likelihood", "output_type": "loglikelihood", "doc_to_target": " {{choices[label]}}"}
    likelihood |= {"target_delimiter": "", "metric_list": [{"metric": "perplexity"}, {"metric": "acc"}]}
    for task in (choice, likelihood):
        (folder / f"{task['task']}.yaml").write_text(yaml.safe_dump(common | task))
    return folder


# Without the harness's own tasks, which take long to list, and without oelm.
FROM_PYTHON = """
import json, sys
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
folder, tasks, out = sys.argv[1:]
found = simple_evaluate(
    model="hf",
    model_args={"pretrained": folder},
    tasks=["endings", "likelihood"],
    task_manager=TaskManager(include_path=tasks, include_defaults=False),
    device="cpu",
    batch_size=3,
)
assert "oelm" not in sys.modules
json.dump({"results": found["results"]}, open(out + "/results_python.json", "w"))
"""


def _started(server: WarmServer, form: str, folder: Path, tasks: Path, out: Path) -> Running:
    if form == "gpt2":
        return server.start(folder, tasks, out, program="", patch=FROM_PYTHON)
    return server.start(
        "--model", "hf", "--model_args", f"pretrained={folder},backend=causal",
        "--tasks", "endings,likelihood", "--include_path", str(tasks),
        "--device", "cpu", "--batch_size", "3", "--output_path", str(out),
        program="oelm.models.lm_eval",
    )  # fmt: skip


@pytest.mark.parametrize("form", ["oelm", "gpt2"])
def test_scores_of_an_export_are_those_computed_by_hand(form, trained, offline, tasks, tmp_path):
    folder, out = tmp_path / "export", tmp_path / "results"
    export(trained("frozen_half"), folder, form=form)
    out.mkdir()
    ended = _started(offline, form, folder, tasks, out).wait(240)
    assert ended.code == 0, ended.text
    (file,) = out.rglob("results_*.json")
    found = json.loads(file.read_text())["results"]

    stored = load_stored(trained("frozen_half"))
    scored = [[_logarithm(stored, text, choice) for choice in CHOICES] for text in BEGINNINGS]
    right = [max(range(3), key=lambda c: row[c][0]) == number % 3 for number, row in enumerate(scored)]
    targets = [row[number % 3] for number, row in enumerate(scored)]
    assert 0 < sum(right) < len(right)
    assert found["endings"]["acc,none"] == pytest.approx(sum(right) / len(right))
    mean = sum(logarithm for logarithm, _ in targets) / len(targets)
    assert found["likelihood"]["perplexity,none"] == pytest.approx(math.exp(-mean), rel=1e-4)
    assert found["likelihood"]["acc,none"] == pytest.approx(sum(greedy for _, greedy in targets) / len(targets))


def test_without_the_harness_the_package_is_named():
    code = "import sys, runpy; sys.modules['lm_eval'] = None; runpy.run_module('oelm.models.lm_eval', {}, '__main__')"
    done = finished([sys.executable, "-c", code])
    assert done.returncode == 2
    assert done.stderr.endswith("lm-evaluation-harness is not installed: pip install 'lm_eval[hf]'\n")
    assert done.stderr.count("\n") == 1
