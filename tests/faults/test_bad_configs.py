"""F1, F2, F3: bad settings and bad data are named, a line each, and settings before torch is even imported."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from runs import assert_refused, training, write_tokens

# ---- F1 ------------------------------------------------------------------------------------------------------------

BAD = {
    # What the file holds, and what some line must say after the file's name.
    "wrong type": ("model: {d_model: wide}", ["model.d_model: must be a whole number (got 'wide')"]),
    "a list for a number": ("model: {d_model: [1, 2]}", ["model.d_model: must be a whole number (got [1, 2])"]),
    "a number for a section": ("model: 5", ["model: "]),
    "half a layer": ("model: {num_layers: 2.5}", ["model.num_layers: must be a whole number (got 2.5)"]),
    "truth for a number": ("training: {steps: true}", ["training.steps: must be a whole number (got True)"]),
    "nan": ("training: {learning_rate: .nan}", ["training.learning_rate: must be a finite number (got nan)"]),
    "nan as a word": ("training: {learning_rate: nan}", ["training.learning_rate: 'nan' is not a finite number"]),
    "inf": ("training: {learning_rate: .inf}", ["training.learning_rate: must be a finite number (got inf)"]),
    "too large": ("training: {learning_rate: 1e999}", ["training.learning_rate: must be a finite number"]),
    "negative": (
        "training: {learning_rate: -3e-4, steps: -5, batch_size: 0}",
        [
            "training.learning_rate: must be above 0 (got -0.0003)",
            "training.steps: must be at least 1 (got -5)",
            "training.batch_size: must be at least 1 (got 0)",
        ],
    ),
    "misspelt key": (
        "training: {learning_rat: 3e-4}\nmodle: {d_model: 64}",
        [
            "training.learning_rat: unknown key; did you mean training.learning_rate?",
            "modle: unknown key; did you mean",
        ],
    ),
    "misspelt choice": ("execution: {precision: bfloat61}", ["execution.precision: 'bfloat61'", "mean bfloat16?"]),
    "misspelt arm": ("arm: frozen_head_orthogonl", ["arm: unknown name 'frozen_head_orthogonl'; did you mean frozen_"]),
    "heads do not divide": (
        "model: {d_model: 30, num_heads: 4}",
        ["model: d_model 30 is not divisible by num_heads 4"],
    ),
    "quoted number": (
        'training: {learning_rate: "3e-4", steps: "100"}',
        [
            "training.learning_rate: '3e-4' is a quoted number; write it without quotes: 3e-4",
            "training.steps: '100' is a quoted number; write it without quotes: 100",
        ],
    ),
    "duplicate key": ("model:\n  d_model: 64\n  d_model: 32", ["line 3: the key 'd_model' occurs twice"]),
    "only a comment": ("# nothing", ["is empty", "arm, model, training, seeds, data, execution, preset"]),
    "a list": ("- a\n- b", ["contains a list, not keys and values"]),
    "a tab": ("model:\n\td_model: 3", [" line 2 is not YAML: "]),
    "a Python object": ("data: !!python/object/apply:os.system ['touch marker']", [" line 1 is not YAML: "]),
    "binary": (bytes(range(256)), ["not a text file (byte 128 is not UTF-8)"]),
    "nul bytes": ("model:\0", ["is not YAML: "]),
    "a number of 5000 digits": ("training: {steps: " + "9" * 5000 + "}", ["training.steps: "]),
    "nested without end": ("[" * 5000, ["is nested too deeply"]),
    "refers to itself": ("model: &a\n  d_model: 16\n  attention: *a", ["more than 10,000 values"]),
    "multiplies itself": (
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
        + "execution: {precision: *i}",
        ["more than 10,000 values"],
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_config_gives_a_line_for_each_problem_before_torch_is_imported(without_torch, tmp_path, kind):
    content, expected = BAD[kind]
    config = tmp_path / "config.yaml"
    config.write_bytes(content if isinstance(content, bytes) else content.encode() + b"\n")
    ended = without_torch("train", config, "--out", tmp_path / "run", cwd=tmp_path)
    assert_refused(ended, *expected)
    lines = ended.err.splitlines()
    for line in lines:
        assert line.startswith(("oelm: arm:", f"oelm: {config}"))
        assert len(line) < 600
    assert len(lines) >= len({problem.partition(": ")[0] for problem in expected if ": " in problem})  # one each
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "learning_rate=fast"], "training.learning_rate: must be a number (got 'fast')"),
        (["--set", "learning_rate=nan"], "training.learning_rate: 'nan' is not a finite number"),
        (["--set", "learning_rat=1"], "--set learning_rat: unknown key; did you mean learning_rate?"),
        (["--set", "learning_rate"], "--set learning_rate: write key=value"),
        (["--set", "=1"], "--set =1: write key=value"),
        (["--set", "share=0.5"], "--set share: could be "),
        (["--set", "d_model=30"], "model: d_model 30 is not divisible by num_heads 4"),
        (["--set", "data=!!python/object/apply:os.system [touch marker]"], "--set data: line 1 is not YAML"),
        (["--set", "arm=trained"], "--set arm: an arm is chosen with --arm NAME"),
        (["--set", "training={}"], "--set training: is a section; give keys and values, or one of training.steps, "),
        (["--preset", "tinny"], "preset: unknown name 'tinny'; did you mean tiny?"),
        (["--arm", "trainde"], "arm: unknown name 'trainde'; did you mean trained?"),
        (["absent.yaml"], "absent.yaml: no such config file (for a preset use --preset"),
        (["."], "config file"),
    ],
)
def test_a_bad_word_is_named_before_torch_is_imported(without_torch, tmp_path, words, said):
    assert_refused(without_torch("train", *words, "--out", tmp_path / "run", cwd=tmp_path), said)
    assert list(tmp_path.iterdir()) == []


def test_an_unquoted_number_with_an_exponent_is_a_number(server, data, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("preset: tiny\ntraining:\n  learning_rate: 3e-4\n  steps: 2e1\n")
    command = training(tmp_path / "run", data, **{"training.steps": None})
    ended = server.run("train", config, *command[1:])
    assert ended.code == 0, ended.text
    assert '"learning_rate": 0.0003' in (tmp_path / "run" / "config.json").read_text()
    assert '"steps": 20,' in (tmp_path / "run" / "config.json").read_text()


# ---- F2 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        ("tinystories", "oelm prepare tinystories --out tinystories"),
        ("my data", "oelm prepare FILE_OR_FOLDER --out 'my data'"),
    ],
)
def test_missing_data_name_the_command_that_prepares_them(server, tmp_path, folder, command):
    ended = server.run(*training(tmp_path / "run", Path(folder)), cwd=tmp_path)
    assert_refused(ended, f"oelm: {folder}: ", f"(looked in {tmp_path / folder})", f"{command}\n")
    assert not (tmp_path / "run").exists()


# ---- F3 ------------------------------------------------------------------------------------------------------------


def with_bytes(at: int, content: bytes):
    def changed(file: Path) -> None:
        held = file.read_bytes()
        file.write_bytes(held[:at] + content + held[at + len(content) :])

    return changed


def cut_to(tokens: int):
    return lambda file: file.write_bytes(file.read_bytes()[: 2 * tokens])


ABOVE = array("H", [64]).tobytes()


@pytest.mark.parametrize(
    ("split", "change", "said"),
    [
        ("train", with_bytes(2 * 3999, ABOVE), "token 64 at token offset 3999 is not below the vocabulary 64"),
        ("val", with_bytes(0, ABOVE), "token 64 at token offset 0 is not below the vocabulary 64"),
        ("train", with_bytes(8000, b"\1"), "8001 bytes is not a whole number of uint16 tokens (offset 8000)"),
        ("train", cut_to(16), "seq_len 16 needs 17"),
        ("val", cut_to(33), "seq_len 16 needs 17"),
        ("train", cut_to(0), "empty"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_data_that_cannot_be_used_are_found_at_load_with_the_place(server, tmp_path, split, change, said):
    file = write_tokens(tmp_path / "data") / f"{split}.bin"
    change(file)
    assert_refused(server.run(*training(tmp_path / "run", tmp_path / "data")), f"{file}: ", said)
    assert not (tmp_path / "run").exists()
