"""S5, S7: names and texts that somebody else chose are shown as text, and lead where they seem to lead."""

import json
import shutil

import pytest
from board_server import served

from oelm.machine.visible import visible
from oelm.run.directory import RunDirectory
from oelm.show.board.state import Board
from stored_runs import small_study, store_study

NAMES = [
    "<img src=x onerror=alert(1)>", "\"><svg onload=alert(1)>", "'; alert(1); '", "{{7*7}}", "${7*7}", "%{customdata}",
    "&lt;escaped&gt;", "javascript:alert(1)", "x..", "a..b", "--help", " leading", "trailing ",
    "tab\there", "new\nline", "return\rhere", "bell\x07", "escape\x1b[31mred", "nul-like\x01",
    "right-to-left\u202egnp.exe", "line\u2028separator", "isolate\u2066text", "\u4e2d\u6587\u540d\u5b57", 
    "emoji \U0001f600",
    "combining e\u0301", "#fragment", "?query=1&lang=zh", "percent%2e%2e%2f", "plus+sign", "semi;colon", "back\\slash",
    "quote\"double", "comma,name", "a" * 200, "$(touch x)", "`touch x`", "\udcff-not-utf8",
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("hostile") / "runs"
    store_study(small_study(arms=["trained"], seeds=[0]), root / "small", lambda *_: 3.0)
    (template,) = (root / "small").iterdir()
    for name in NAMES:
        shutil.copytree(template, root / "small" / name)
    directory = RunDirectory(template)
    directory.log_file.write_text("<script>alert(1)</script>\x1b[31m\n")
    sample = {"prompt": "<b>", "texts": ["<img src=x onerror=alert(1)>\x1b"], "temperature": 1.0, "top_k": 0, "seed": 0}
    directory.sample_file.write_text(json.dumps(sample))
    with served(Board(root)) as found:
        yield found


def test_a_run_with_such_a_name_is_shown_as_text_and_found_by_its_address(server):
    ids = {row["id"] for row in server.json("data/study", name="small")["rows"]}
    for name in NAMES:
        shown = visible(name)
        assert f"small/{shown}" in ids
        found = server.json("data/run", name=f"small/{shown}")
        assert found["row"]["run"] == shown
        assert found["row"]["val_loss"] == 3.0
        text = json.dumps(found, ensure_ascii=False)
        assert visible(text) == text  # nothing acts


def test_logs_and_generated_text_are_shown_with_their_control_characters_visible(server):
    id = next(row["id"] for row in server.json("data/study", name="small")["rows"] if "trained-s0" in row["id"])
    found = server.json("data/run", name=id)
    assert found["log"] == ["<script>alert(1)</script>\\x1b[31m"]
    assert found["sample"]["texts"] == ["<img src=x onerror=alert(1)>\\x1b"]


def test_json_is_never_taken_for_a_page(server):
    for path in ("/data/study?name=small", "/data/overview", "/words?lang=zh"):
        _, headers, _ = server.answer(path)
        assert headers["content-type"] == "application/json"
        assert headers["x-content-type-options"] == "nosniff"
