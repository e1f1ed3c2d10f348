"""From words to validated settings: numbers are numbers, and every problem is one line with its key."""

import json

import pytest

from oelm.core.arms import GPT_ARMS, PRETRAINED_ARMS
from oelm.core.config import MOST_DIGITS, PRESETS, resolved, stored_form
from oelm.core.settings import full_key, load_settings, read_yaml, settings_of, stored_run, written_out
from oelm.machine.errors import UserError
from oelm.storage.files import read_json, write_json


@pytest.mark.parametrize("text", ["3e-4", "3E-4", "0.0003", "3.0e-04", ".0003"])
def test_an_unquoted_number_is_a_number_in_yaml_and_on_the_command_line(text, tmp_path):
    assert read_yaml(f"x: {text}", name="test")["x"] == 3e-4
    file = tmp_path / "run.yaml"
    file.write_text(f"training: {{learning_rate: {text}}}")
    assert load_settings(str(file)).run.training.learning_rate == 3e-4
    settings = load_settings(assignments=[f"learning_rate={text}", "training.steps=1e3", "compile=off"])
    assert (settings.run.training.learning_rate, settings.run.training.steps) == (3e-4, 1000)
    assert settings.execution.compile == "off"


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("learning_rat=1e-3", "learning_rat: unknown key; did you mean learning_rate?"),
        ("training.stps=3", "training.stps: unknown key; did you mean training.steps?"),
        ("parts={query: {strt: normal}}", "model.parts.query.strt: unknown key; did you mean model.parts.query.start?"),
        ("training={}", "is a section"),
        ("learning_rate='3e-4'", "training.learning_rate: '3e-4' is a quoted number; write it without quotes: 3e-4"),
        ("learning_rate=nan", "training.learning_rate: 'nan' is not a finite number"),
        ("learning_rate=.inf", "training.learning_rate: must be a finite number (got inf)"),
        ("learning_rate=-1", "training.learning_rate: must be above 0 (got -1)"),
        ("steps=1.5", "training.steps: must be a whole number (got 1.5)"),
        ("steps=true", "training.steps: must be a whole number (got True)"),
        ("num_heads=7", "d_model 128 is not divisible by num_heads 7"),
        ("precision=bf16", "did you mean bfloat16?"),
        ("seed", "write key=value"),
        ("arm=trained", "chosen with --arm"),
        ("start=normal", "could be model.parts.token_embedding.start, model.parts.position_embedding.start"),
        ("steps=1" + 25 * "0", "training.steps: must have at most 20 digits"),
        ("seeds.data=1e20", "seeds.data: must have at most 20 digits"),
        ("moves.kind=never", "model.parts.query.moves.kind, model.parts.key.moves.kind and 5 more; write it in full"),
        ("moves=never", "could be model.parts.token_embedding.moves.kind"),
        ("moves.knd=never", "did you mean model.parts.query.moves.kind?"),
        ("model.parts.query.moves=never", "model.parts.query.moves: must be keys and values (got 'never')"),
        ("model.parts.query.moves.kind=nver", "moves.kind: 'nver' is not one of"),
        ("model.attention.query.moves.steps=3", "model.parts.query.moves.steps: is only valid with kind every"),
        ("model.parts.query.moves.fraction=3", "moves.fraction: is only valid with kind after or before"),
        ("model.parts.query.moves.steps=3", "moves.steps: is only valid with kind every"),
        ("model.scores.temperature=2", "is a section; give keys and values, or one of model.scores.temperature.kind"),
        (
            "query=never",
            "is a section; give keys and values, or one of model.parts.query.start, model.parts.query.gain",
        ),
        ("seeds=3", "is a section; give keys and values, or one of seeds.weights, seeds.projections, seeds.data"),
    ],
)
def test_a_bad_value_is_one_line_with_its_key(assignment, expected):
    with pytest.raises(UserError) as caught:
        load_settings(assignments=[assignment])
    assert expected in str(caught.value)
    assert str(caught.value).startswith("--set ")
    assert len(str(caught.value).splitlines()) == 1


MISPLACED = {
    "model: {pretrained: false}": "model.pretrained: unknown key: only an encoder has it",
    "model: {kind: gpt}": "model.kind: unknown key: only an encoder has it",
    "learning_rate: 1e-3": "did you mean training.learning_rate?",
    "steps: 3": "did you mean training.steps?",
    "training: {dropout: 0.1}": "did you mean model.dropout?",
    "parts: {query: {}}": "did you mean model.parts?",
    "trainig: {steps: 1}": "did you mean training?",
    "model: {attention: {query: {moves: {kind: after, fraction: 0.5, steps: 3}}}}": "only valid with kind every",
    "model: {attention: {query: {moves: {kind: after, fraction: 0.5, zzz: 3}}}}": "takes kind, fraction, order",
    "seed: 3": "did you mean seeds? It takes weights, projections and data; `oelm train --seed N` sets all three",
    "training: {seed: 3}": "did you mean seeds? It takes weights, projections and data",
    "seeds: 3": "seeds: takes weights, projections and data; `oelm train --seed N` sets all three (got 3)",
    "presett: tiny": "did you mean preset?",
    "zzz: 1": "the file takes arm, model, training, seeds, data, execution, preset",
    "model: 5": "model: takes vocabulary, seq_len, d_model, ",
    "model: {kind: encoder, positons: 4}": "did you mean model.positions?",
    "model: {scores: {temperature: per_head}}": "model.scores.temperature: takes kind (got 'per_head')",
    "model: {attention: {query: {gain: 2}}, parts: {query: {gain: 3}}}": "model.attention.query: is also under",
}


@pytest.mark.parametrize("text", MISPLACED)
def test_a_hint_names_a_key_that_would_be_taken_and_never_the_refused_one(text, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(UserError) as caught:
        load_settings(str(file))
    line = str(caught.value).removeprefix(f"{file}: ")
    assert MISPLACED[text] in line
    key, meant = line.partition(":")[0], line.partition("did you mean ")[2].rstrip("?")
    assert meant != key


@pytest.mark.parametrize("key", ["strat", "armm", "pretraned", "learning_rte", "sed", "moves.knd"])
def test_a_hint_for_set_can_be_given_to_set(key):
    with pytest.raises(UserError) as caught:
        load_settings(assignments=[f"{key}=1"])
    meant = str(caught.value).partition("did you mean ")[2].rstrip("?")
    if meant:
        assert full_key(meant)
        assert meant != "arm"


def test_what_has_an_option_of_its_own_is_sent_there():
    for pair in ("seed=3", "preset=small"):
        key, _, value = pair.partition("=")
        with pytest.raises(UserError, match=f"--{key} {value}"):
            load_settings(assignments=[pair])
    for pair, option in {
        "seed=-1": "seed N",
        "training.seed=3": "seed 3",
        "execution.seed=": "seed N",
        "out=x": "out x",
    }.items():
        with pytest.raises(UserError, match=f"has its own option: --{option}$"):
            load_settings(assignments=[pair])


def test_a_number_that_is_taken_can_be_read_back_from_the_file_it_is_stored_in(tmp_path):
    """Also what is computed from two of the largest."""
    largest = 10**MOST_DIGITS - 1
    run = load_settings(seed=largest, assignments=[f"steps={largest}", f"batch_size={largest}"]).run
    write_json(tmp_path / "config.json", stored_form(resolved(run, {"vocabulary": 64})))
    assert stored_run(read_json(tmp_path / "config.json"), name="config.json").seeds.data == largest
    with pytest.raises(UserError, match=r"^--seed 10{20}: must have at most 20 digits$"):
        load_settings(seed=largest + 1)


def test_every_problem_of_a_file_has_its_own_line(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("model: {d_modell: 64}\ntraining: {steps: none, weight_decay: -1}\n")
    with pytest.raises(UserError) as caught:
        load_settings(str(file))
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert any("model.d_modell: unknown key; did you mean model.d_model?" in line for line in lines)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"- 1", "not keys and values"),
        (b"a: [1", "is not YAML"),
        (b"\xff\xfe\x00", "not a text file"),
        (b"data: a\ndata: b", "occurs twice"),
        (b'a: 1\nb: "\\uD800"', "line 2: contains half a character"),
        (b"data: !!python/object/apply:os.system ['true']", "is not YAML"),
    ],
)
def test_a_file_that_is_no_config_says_so(content, expected, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_bytes(content)
    with pytest.raises(UserError, match=expected):
        load_settings(str(file))


def test_a_fault_is_given_to_who_wrote_it(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("preset: tiny\ntraining: {batch_size: none}")
    with pytest.raises(UserError) as caught:
        load_settings(str(file), assignments=["steps=abc"])
    assert str(caught.value).splitlines() == [
        "--set training.steps: must be a whole number (got 'abc')",
        f"{file}: training.batch_size: must be a whole number (got 'none')",
    ]


@pytest.mark.parametrize("arm", PRETRAINED_ARMS)
def test_an_arm_for_given_weights_is_refused_in_one_line_where_there_are_none(arm):
    with pytest.raises(UserError, match=rf"^arm: {arm} is for models that come with weights: .*$"):
        load_settings(arm=arm)


@pytest.mark.parametrize("d_model", [32, 256])
def test_a_resolved_run_keeps_the_name_of_its_arm(d_model):
    """The runs of a study are stored resolved: rank 1 or 2 where the arm says null."""
    for arm in GPT_ARMS:
        settings = load_settings(arm=arm, assignments=[f"d_model={d_model}"])
        stored = written_out(settings.model_copy(update={"run": resolved(settings.run, {"vocabulary": 64})}))
        assert settings_of(stored, name=arm).run.arm == arm
    assert load_settings(arm="frozen_orthogonal_residual", assignments=["residual.rank=3"]).run.arm == "custom"


def test_a_file_may_start_from_a_preset_and_write_out_a_projection(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(
        "preset: small\narm: frozen_normal\nmodel: {attention: {query: {moves: {kind: after, fraction: 0.5}}}}\n"
    )
    run = load_settings(str(file)).run
    assert run.model.d_model == 256
    assert run.model.parts.query.moves.kind == "after"
    assert run.model.parts.key.moves.kind == "never"
    assert run.arm == "custom"


@pytest.mark.parametrize("pair", ["steps=7", "model.parts.query.gain=2.0"])
def test_settings_written_out_are_read_back(pair, tmp_path):
    settings = load_settings(arm="frozen_head_orthogonal", assignments=[pair, "threads=1"])
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(written_out(settings)))
    assert load_settings(str(file)) == settings


def test_a_section_is_given_as_its_keys_one_by_one_are():
    single = ["parts.query.start=orthogonal", "parts.query.moves.kind=never", "training.steps=7"]
    together = ["model.parts={query: {start: orthogonal, moves: {kind: never}}}", "training={steps: 7}"]
    assert load_settings(assignments=together) == load_settings(assignments=single)
    assert (
        load_settings(assignments=["training={steps: 7}"]).run.training.batch_size
        == PRESETS["tiny"].training.batch_size
    )


@pytest.mark.parametrize(
    "text",
    [
        "{en: Does it hold?, zh: 行吗}",
        "{en: ? Does it}",
        "{en: Does it? Really, zh: 行吗}",
        "Does it: hold",
        "[it] holds",
        "{en: a: b}",
    ],
)
def test_a_text_that_needs_quotes_is_told_so(text):
    with pytest.raises(UserError, match="needs quotes"):
        read_yaml(f"question: {text}\nseeds: [1]\n", name="s.yaml")


def test_other_mistakes_in_yaml_are_not_put_down_to_quotes():
    for text in ("a: {b: 1", "a: *b", "a: 1\n  b: 2\n c: 3\n\td: 4"):
        with pytest.raises(UserError) as caught:
            read_yaml(text, name="s.yaml")
        assert ("quotes" in str(caught.value)) == ("not allowed here" in str(caught.value))


@pytest.mark.parametrize("version", [1, 3, 4])
def test_a_stored_run_of_a_format_that_no_finding_has_is_refused_in_one_line(version):
    with pytest.raises(UserError, match=rf"^config.json: has format version {version}, this oelm reads 2 and 5; .*$"):
        stored_run({"format_version": version, "model": {}}, name="config.json")
