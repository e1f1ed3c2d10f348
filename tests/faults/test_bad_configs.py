"""F1, F2, F3: bad settings and bad data are named, a line each, and settings before torch is even imported."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from runs import training, write_tokens

from warm import cold

# ---- F1 ------------------------------------------------------------------------------------------------------------

BAD = {
    # What the file holds, and what each line must say after the file's name.
    "wrong type": ("model:\n  d_model: wide\n", ["model.d_model: must be a whole number (got 'wide')"]),
    "a list for a number": (
        "model:\n  d_model: [1, 2]\n",
        ["model.d_model: must be a whole number (got [1, 2])"],
    ),
    "a number for a section": ("model: 5\n", ["model: "]),
    "half a layer": ("model:\n  num_layers: 2.5\n", ["model.num_layers: must be a whole number (got 2.5)"]),
    "truth for a number": (
        "training:\n  steps: true\n",
        ["training.steps: must be a whole number (got True)"],
    ),
    "nan": (
        "training:\n  learning_rate: .nan\n",
        ["training.learning_rate: must be a finite number (got nan)"],
    ),
    "nan as a word": ("training:\n  learning_rate: nan\n", ["training.learning_rate: 'nan' is not a finite number"]),
    "inf": (
        "training:\n  learning_rate: .inf\n",
        ["training.learning_rate: must be a finite number (got inf)"],
    ),
    "too large for a float": (
        "training:\n  learning_rate: 1e999\n",
        ["training.learning_rate: must be a finite number"],
    ),
    "negative": (
        "training:\n  learning_rate: -3e-4\n  steps: -5\n  batch_size: 0\n",
        [
            "training.learning_rate: must be above 0 (got -0.0003)",
            "training.steps: must be at least 1 (got -5)",
            "training.batch_size: must be at least 1 (got 0)",
        ],
    ),
    "misspelt key": (
        "training:\n  learning_rat: 3e-4\nmodle:\n  d_model: 64\n",
        [
            "training.learning_rat: unknown key; did you mean training.learning_rate?",
            "modle: unknown key; did you mean model?",
        ],
    ),
    "misspelt choice": (
        "execution:\n  precision: bfloat61\n",
        [
            "execution.precision: 'bfloat61' is not one of 'auto', 'float32', 'bfloat16' or 'float64'; "
            "did you mean bfloat16?"
        ],
    ),
    "misspelt arm": (
        "arm: frozen_head_orthogonl\n",
        ["arm: unknown name 'frozen_head_orthogonl'; did you mean frozen_head_ortho"],
    ),
    "heads do not divide": (
        "model:\n  d_model: 30\n  num_heads: 4\n",
        ["model: d_model 30 is not divisible by num_heads 4"],
    ),
    "quoted number": (
        'training:\n  learning_rate: "3e-4"\n  steps: "100"\n',
        [
            "training.learning_rate: '3e-4' is a quoted number; write it without quotes: 3e-4",
            "training.steps: '100' is a quoted number; write it without quotes: 100",
        ],
    ),
    "duplicate key": ("model:\n  d_model: 64\n  d_model: 32\n", ["line 3: the key 'd_model' occurs twice"]),
    "empty": (
        "",
        ["is empty; a config contains at least one of: arm, model, training, seeds, data, execution, preset"],
    ),
    "only a comment": ("# nothing\n", ["is empty"]),
    "a list": ("- a\n- b\n", ["contains a list, not keys and values"]),
    "a sentence": ("just words\n", ["contains a str, not keys and values"]),
    "not YAML": ("model: [1, 2\ntraining: {\n", [" line 2 is not YAML: "]),
    "a tab": ("model:\n\td_model: 3\n", [" line 2 is not YAML: "]),
    "a Python object": (
        "data: !!python/object/apply:os.system ['touch marker']\n",
        [" line 1 is not YAML: could not determine a constructor for the tag"],
    ),
    "binary": (bytes(range(256)), ["not a text file (byte 128 is not UTF-8)"]),
    "nul bytes": ("model:\0\n", ["is not YAML: "]),
    "a number of 5000 digits": ("training:\n  steps: " + "9" * 5000 + "\n", ["training.steps: "]),
    "nested without end": ("[" * 5000, ["is nested too deeply"]),
    "refers to itself": (
        "model: &a\n  d_model: 16\n  attention: *a\n",
        ["contains more than 10,000 values, or one that contains it"],
    ),
    "multiplies itself": (
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
        + "execution:\n  precision: *i\n",
        ["contains more than 10,000 values, or one that contains itself"],
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_config_gives_a_line_for_each_problem_before_torch_is_imported(without_torch, tmp_path, kind):
    content, expected = BAD[kind]
    config = tmp_path / "config.yaml"
    config.write_bytes(content if isinstance(content, bytes) else content.encode())
    ended = without_torch("train", config, "--out", tmp_path / "run", cwd=tmp_path)
    assert ended.code == 2, ended.text
    assert "Traceback" not in ended.text
    lines = ended.err.splitlines()
    for line in lines:
        assert line.startswith("oelm: ")
        assert len(line) < 600
    for problem in expected:
        assert any(problem in line for line in lines), ended.err
        assert any(str(config) in line or "arm:" in line for line in lines), ended.err
    assert len(lines) >= len(expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml"]


def test_a_bad_config_is_named_to_a_user_at_the_command_line(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("training:\n  learning_rat: 3e-4\n")
    ended = cold("train", config)
    assert ended.code == 2
    assert ended.err == f"oelm: {config}: training.learning_rat: unknown key; did you mean training.learning_rate?\n"


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("learning_rate=fast", "training.learning_rate: must be a number (got 'fast')"),
        ("learning_rate=nan", "training.learning_rate: 'nan' is not a finite number"),
        ("learning_rat=1", "--set learning_rat: unknown key; did you mean learning_rate?"),
        ("learning_rate", "--set learning_rate: write key=value"),
        ("=1", "--set =1: write key=value"),
        ("share=0.5", "--set share: could be "),
        ("d_model=30", "model: d_model 30 is not divisible by num_heads 4"),
        ("d_model=[1", "--set d_model: line 1 is not YAML"),
        ("data=!!python/object/apply:os.system [touch marker]", "--set data: line 1 is not YAML"),
        ("arm=trained", "--set arm: an arm is chosen with --arm NAME"),
        ("training={}", "--set training: is a section; give keys and values, or one of training.steps, "),
    ],
)
def test_a_bad_assignment_is_named_before_torch_is_imported(without_torch, tmp_path, assignment, said):
    ended = without_torch("train", "--set", assignment, "--out", tmp_path / "run", cwd=tmp_path)
    assert ended.code == 2, ended.text
    assert said in ended.err
    assert "Traceback" not in ended.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--preset", "tinny"], "preset: unknown name 'tinny'; did you mean tiny?"),
        (["--arm", "trainde"], "arm: unknown name 'trainde'; did you mean trained?"),
        (["absent.yaml"], "absent.yaml: no such config file (for a preset use --preset"),
        (["."], "config file"),
    ],
)
def test_an_unknown_name_is_named_before_torch_is_imported(without_torch, tmp_path, words, said):
    ended = without_torch("train", *words, "--out", tmp_path / "run", cwd=tmp_path)
    assert ended.code == 2, ended.text
    assert said in ended.err
    assert "Traceback" not in ended.text


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
    assert ended.code == 2
    looked = f"no prepared data there (looked in {tmp_path / folder})"
    assert f"oelm: {folder}: {looked}; create it with: {command}\n" in ended.err
    assert not (tmp_path / "run").exists()


# ---- F3 ------------------------------------------------------------------------------------------------------------


def refused(server, folder: Path, out: Path) -> str:
    ended = server.run(*training(out, folder))
    assert ended.code == 2, ended.text
    assert "Traceback" not in ended.text
    assert not out.exists()
    return ended.err


@pytest.mark.parametrize(("split", "offset"), [("train", 3999), ("val", 0), ("val", 799)])
def test_a_token_above_the_vocabulary_is_found_at_load_with_its_offset(server, tmp_path, split, offset):
    folder = write_tokens(tmp_path / "data")
    tokens = array("H", (folder / f"{split}.bin").read_bytes())
    tokens[offset] = 64
    (folder / f"{split}.bin").write_bytes(tokens.tobytes())
    said = refused(server, folder, tmp_path / "run")
    assert f"{folder / split}.bin: token 64 at token offset {offset} is not below the vocabulary 64" in said


def test_half_a_token_is_found_at_load_with_its_offset(server, tmp_path):
    folder = write_tokens(tmp_path / "data")
    with open(folder / "train.bin", "ab") as stream:
        stream.write(b"\1")
    assert f"{folder / 'train.bin'}: 8001 bytes is not a whole number of uint16 tokens (offset 8000)" in refused(
        server, folder, tmp_path / "run"
    )


@pytest.mark.parametrize(("split", "tokens"), [("train", 16), ("val", 33), ("train", 0)])
def test_data_shorter_than_a_sequence_are_found_at_load(server, tmp_path, split, tokens):
    folder = write_tokens(tmp_path / "data")
    with open(folder / f"{split}.bin", "rb+") as stream:
        stream.truncate(2 * tokens)
    said = refused(server, folder, tmp_path / "run")
    assert f"{folder / split}.bin: " in said
    assert ("empty" if tokens == 0 else "seq_len 16 needs 17") in said
