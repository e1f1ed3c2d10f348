"""S7: a character that would act on a terminal or hide in a report is shown as an escape, and no other is touched."""

import json
import random
import sys
import unicodedata

import pytest

from oelm.machine.visible import json_text, visible

BIDIRECTIONAL = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
SAMPLES = {"\x1b[2J": "\\x1b[2J", "\x9b31m": "\\x9b31m", "\u202egnp.exe": "\\u202egnp.exe", "\ud800": "\\ud800"}


def acts(character: str) -> bool:
    category = unicodedata.category(character)
    return (category in ("Cc", "Cs", "Zl", "Zp") and character not in "\n\t") or ord(character) in BIDIRECTIONAL


def test_every_character_is_shown_or_itself():
    for number in range(sys.maxunicode + 1):
        character = chr(number)
        shown = visible(character)
        assert (shown == character) == (not acts(character)), hex(number)
        if acts(character):
            assert shown in (f"\\x{number:02x}", f"\\u{number:04x}")


@pytest.mark.parametrize("text", SAMPLES)
def test_escapes_are_as_python_writes_them(text):
    assert visible(text) == SAMPLES[text]
    assert visible(visible(text)) == visible(text)


def test_text_of_any_script_and_layout_stay():
    text = "одна\tстрока\nالسطر الثاني 第二行 👩‍🔬 e\u0301 \\x1b"
    assert visible(text) == text


def test_json_is_read_back_as_it_was_and_holds_no_such_character():
    draw = random.Random(0)
    for _ in range(300):
        text = "".join(chr(draw.choice([*range(0xA0), *BIDIRECTIONAL, 0x2028, 0xDC9B, 0x4E2D])) for _ in range(20))
        written = json_text({text: [text, 1.5, None]})
        assert json.loads(written) == {text: [text, 1.5, None]}
        assert visible(written) == written
        written.encode()


def test_json_keeps_letters():
    assert "第二行" in json_text(["第二行"])
