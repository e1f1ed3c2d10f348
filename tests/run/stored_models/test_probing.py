"""Head scores of stored models: the same numbers whatever form a model is stored in, and one line for what has none."""

import json
import shlex
import sys

import numpy as np
import pytest
import torch
import transformers
from typer.testing import CliRunner

from oelm.cli import app
from oelm.machine.errors import UserError
from oelm.models.heads.kinds import NAMES
from oelm.models.heads.scores import Sequences, head_scores, repeated_tokens
from oelm.run.stored_models.export import export
from oelm.run.stored_models.given import given_model
from oelm.run.stored_models.probing import probed
from oelm.run.training.run import train
from small_runs import finished, quiet_execution, small_run
from tiny_transformers import tiny


def scores_of(path, **settings):
    given = given_model(path)
    options = {"data": None, "length": given.checked_length(None), "sequences": 4, "seed": 0} | settings
    return probed(given, **options).scores


def same(one, other, *, rtol=1e-4):
    for name in NAMES:
        assert np.allclose(one.scores[name], other.scores[name], rtol=rtol, atol=1e-6), name
    assert one.positions == other.positions


def test_a_run_its_export_and_a_gpt2_folder_give_the_same_numbers(trained, tmp_path):
    run = trained("trained")
    of_run = scores_of(run)
    for form in ("oelm", "gpt2"):
        export(run, tmp_path / form, form=form)
        same(scores_of(tmp_path / form), of_run)
    same(scores_of(run / "best"), of_run, rtol=0)


def by_transformers(folder, *, length, **how):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **how).eval()
    tokens = repeated_tokens(given_model(folder).vocabulary, length=length, sequences=4, seed=0)
    with torch.no_grad():
        attentions = model(torch.from_numpy(tokens), output_attentions=True).attentions
    return head_scores(Sequences(tokens), lambda part: [layer.numpy() for layer in attentions], at_once=4)


def test_scores_are_those_of_the_weights_that_transformers_gives(trained, tmp_path):
    folder = tmp_path / "it"
    export(trained("frozen_head_orthogonal"), folder, form="oelm")
    same(scores_of(folder), by_transformers(folder, length=given_model(folder).checked_length(None)))


@pytest.mark.parametrize("kind", ["llama", "gpt_neox"])
def test_a_causal_model_of_transformers_is_scored(tmp_path, kind):
    tiny(kind, max_position_embeddings=16).save_pretrained(tmp_path / kind)
    found = scores_of(tmp_path / kind)
    assert np.array(found.scores["induction"]).shape == (2, 4)
    same(found, by_transformers(tmp_path / kind, length=16, attn_implementation="eager"))


def test_text_is_scored_where_a_token_occurred_before(trained, stories):
    found = scores_of(trained("trained"), data=str(stories))
    assert 0 < found.positions < 4 * 128
    assert scores_of(trained("trained"), data=str(stories), seed=1).scores != found.scores


def test_a_model_without_attention_weights_is_refused_in_one_line(tmp_path):
    mamba = transformers.MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, state_size=4)
    transformers.MambaForCausalLM(mamba).save_pretrained(tmp_path / "mamba")
    with pytest.raises(UserError, match="a model of type mamba has no attention weights"):
        given_model(tmp_path / "mamba")
    config = json.loads((tmp_path / "mamba" / "config.json").read_text())
    (tmp_path / "mamba" / "config.json").write_text(json.dumps(config | {"num_attention_heads": 2}))
    with pytest.raises(UserError, match="a model of type mamba has no attention weights"):
        scores_of(tmp_path / "mamba")


REFUSED_EACH = """
import json, sys
import oelm.cli
for line in json.loads(sys.argv[1]):
    sys.argv = ['oelm', 'probe', *line]
    try:
        oelm.cli.main()
    except SystemExit as done:
        print(done.code, 'torch' in sys.modules)
"""


def test_what_cannot_be_probed_is_refused_in_one_line_before_torch_is_loaded(trained, tmp_path):
    run = str(trained("trained"))
    tiny("bert").save_pretrained(tmp_path / "bert")
    refused = {
        ("nowhere",): "nowhere: no such folder",
        (str(tmp_path),): "neither a run nor a model",
        (str(tmp_path / "bert"),): "contains a BertForSequenceClassification; only the heads of causal",
        (run, "--figure", "heads.pdf"): "--figure heads.pdf: the name must end in .png or .svg",
        (run, "--figure", "nowhere/heads.png"): "--figure nowhere/heads.png: no such folder: nowhere",
        (run, "--length", "1000"): "--length 1000: the model in",
        (run, "--length", "6"): "--length 6: telling the kinds of head apart takes at least 7 tokens",
        (run, "--data", "nowhere"): "--data nowhere: no such folder",
        (run, "--sequences", "0"): "'--sequences'",
    }
    done = finished([sys.executable, "-c", REFUSED_EACH, json.dumps(list(refused))])
    assert done.stdout.splitlines() == ["2 False"] * len(refused), done.stderr
    for line, words in zip(done.stderr.splitlines(), refused.values(), strict=True):
        assert words in line


def test_the_command_prints_a_table_or_json_and_draws_both_files(trained, tmp_path):
    run = trained("trained")
    shown = CliRunner().invoke(app, ["probe", str(run), "--figure", str(tmp_path / "heads.png")])
    rows = [line.split() for line in shown.output.splitlines()]
    assert [row[:2] for row in rows[2:10]] == [[str(layer), str(head)] for layer in range(2) for head in range(4)]
    assert (tmp_path / "heads.png").stat().st_size > 1000
    assert (tmp_path / "heads.svg").stat().st_size > 1000
    found = json.loads(CliRunner().invoke(app, ["probe", str(run), "--json"]).stdout)
    assert rows[2][2].rstrip("*") == f"{found['scores']['previous'][0][0]:.3f}"
    assert found["sequences"] == 16
    assert 16 * 12 <= found["positions"] <= 16 * 23


def test_a_run_on_a_probe_says_how_to_score_on_its_own_examples(tmp_path):
    run = tmp_path / "run"
    small = small_run(data="probe:recall?pairs=2,3,4&length=16&vocabulary=64", steps=2)
    train(small, quiet_execution(), out=run)
    last = CliRunner().invoke(app, ["probe", str(run)]).output.splitlines()[-1]
    command = shlex.split(last.partition("held-out examples: ")[2])
    assert command[:2] == ["oelm", "probe"]
    assert "held-out" not in CliRunner().invoke(app, command[1:]).output
