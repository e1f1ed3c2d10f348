"""What is read is checked: one way to be wrong, whatever a file holds."""

import json

import pytest

from oelm.storage.files import MOST_DIGITS, MOST_LEVELS, Damaged, digest_of, read_json


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 100_000])
def test_deep_nesting_is_damage(tmp_path, levels):
    (tmp_path / "file").write_text(nested(levels))
    with pytest.raises(Damaged, match="nested too deeply"):
        read_json(tmp_path / "file")


def test_what_we_write_ourselves_is_never_too_deep(tmp_path):
    (tmp_path / "file").write_text(nested(MOST_LEVELS))
    assert json.dumps(read_json(tmp_path / "file")) == nested(MOST_LEVELS)


@pytest.mark.parametrize("content", ["", "{", "NaN", "1e999", "9" * (MOST_DIGITS + 1)])
def test_what_is_no_json_of_finite_numbers_is_damage(tmp_path, content):
    (tmp_path / "file").write_text(content, encoding="utf-8")
    with pytest.raises(Damaged, match=f"{tmp_path / 'file'}: damaged: "):
        read_json(tmp_path / "file")


@pytest.mark.parametrize("content", [b"\xff\xfe{}", b'{"x": "\xe9"}'])
def test_another_encoding_is_damage(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(Damaged):
        read_json(tmp_path / "file")


def test_a_digest_is_that_of_the_value_whatever_the_order_of_its_keys():
    one, other = {"a": 1, "b": {"c": [2.5], "d": None}}, {"b": {"d": None, "c": [2.5]}, "a": 1}
    assert digest_of(one) == digest_of(other) != digest_of({"a": 1, "b": {"c": [2.5], "d": 0}})


def test_a_folder_in_the_place_of_a_file_is_damage(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(Damaged, match="not a regular file"):
        read_json(tmp_path / "file")
