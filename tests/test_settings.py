"""From words to validated settings: numbers are numbers, and every problem is one line with its key."""

import json

import pytest

from oelm.errors import UserError
from oelm.settings import load_settings, read_yaml, written_out


@pytest.mark.parametrize("text", ["3e-4", "3E-4", "0.0003", "3.0e-04", ".0003"])
def test_an_unquoted_number_is_a_number_in_yaml_and_on_the_command_line(text, tmp_path):
    assert read_yaml(f"x: {text}", name="test")["x"] == 3e-4
    file = tmp_path / "run.yaml"
    file.write_text(f"training: {{learning_rate: {text}}}")
    assert load_settings(str(file)).run.training.learning_rate == 3e-4
    assert load_settings(assignments=[f"learning_rate={text}"]).run.training.learning_rate == 3e-4


def test_a_whole_number_may_be_written_with_an_exponent():
    assert load_settings(assignments=["training.steps=1e3"]).run.training.steps == 1000


def test_on_and_off_are_words():
    assert load_settings(assignments=["compile=off"]).execution.compile == "off"


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("learning_rat=1e-3", "learning_rat: unknown key; did you mean learning_rate?"),
        ("learning_rate='3e-4'", "training.learning_rate: '3e-4' is a quoted number; write it without quotes: 3e-4"),
        ("learning_rate=nan", "training.learning_rate: 'nan' is not a finite number"),
        ("learning_rate=.inf", "training.learning_rate: input should be a finite number"),
        ("learning_rate=-1", "training.learning_rate: input should be greater than 0"),
        ("steps=1.5", "training.steps: input should be a valid integer"),
        ("steps=true", "training.steps: input should be a valid integer"),
        ("num_heads=7", "d_model 128 is not divisible by num_heads 7"),
        ("precision=bf16", "did you mean bfloat16?"),
        ("seed", "write key=value"),
        ("arm=trained", "chosen with --arm"),
        ("start=normal", "could be model.attention.query.start, model.attention.key.start"),
    ],
)
def test_a_bad_value_is_one_line_with_its_key(assignment, expected):
    with pytest.raises(UserError) as caught:
        load_settings(assignments=[assignment])
    assert expected in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


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
        (b"data: a\ndata: b", "there twice"),
        (b"data: !!python/object/apply:os.system ['true']", "is not YAML"),
    ],
)
def test_a_file_that_is_no_config_says_so(content, expected, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_bytes(content)
    with pytest.raises(UserError, match=expected):
        load_settings(str(file))


def test_a_changed_spec_loses_the_name_of_its_arm():
    assert load_settings(arm="every_n").run.arm == "every_n"
    assert load_settings(arm="every_n", assignments=["model.attention.query.moves.steps=3"]).run.arm == "custom"


def test_a_file_may_start_from_a_preset_and_write_out_a_projection(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(
        "preset: small\narm: frozen_normal\nmodel: {attention: {query: {moves: {kind: after, fraction: 0.5}}}}\n"
    )
    run = load_settings(str(file)).run
    assert run.model.d_model == 256
    assert run.model.attention.query.moves.kind == "after"
    assert run.model.attention.key.moves.kind == "never"
    assert run.arm == "custom"


@pytest.mark.parametrize("pair", ["steps=7", "model.attention.query.gain=2.0"])
def test_settings_written_out_are_read_back(pair, tmp_path):
    settings = load_settings(arm="frozen_head_orthogonal", assignments=[pair, "threads=1"])
    file = tmp_path / "settings.json"
    file.write_text(json.dumps(written_out(settings)))
    assert load_settings(str(file)) == settings
