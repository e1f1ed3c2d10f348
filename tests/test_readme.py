"""The README's commands exist as printed, its walk works on a small corpus, and its links lead somewhere."""

import re
import shlex

import pytest

import oelm
from small_runs import REPOSITORY, oelm_command

README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
COMMANDS = [line.strip().partition("#")[0].strip() for line in README.splitlines() if line.startswith("    oelm ")]
SMALLER = {"prepare": ["--stories", "300"], "train": ["--set", "steps=4", "--set", "threads=1"]}


@pytest.fixture(scope="module")
def flags():
    from typer.main import get_command

    from oelm.cli import app

    def flags_of(command) -> set[str]:
        inner = [flags_of(each) for each in getattr(command, "commands", {}).values()]
        return {flag for option in command.params for flag in option.opts}.union(*inner)

    return {verb: flags_of(command) for verb, command in get_command(app).commands.items()}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_printed_command_names_a_verb_and_flags_that_exist(command, flags):
    _, verb, *rest = shlex.split(command)
    assert verb in flags
    assert {word for word in rest if word.startswith("--")} <= flags[verb]


def test_the_walk_works_as_printed(tmp_path, monkeypatch):
    """The walk of one run, made smaller, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    walk = README[README.index("## One run") : README.index("### Text")]
    commands = [shlex.split(line.partition("#")[0])[1:] for line in walk.splitlines() if line.startswith("    oelm ")]
    assert [each[0] for each in commands] == ["prepare", "train", "diagnose", "generate", "train", "compare"]
    for command in commands:
        done = oelm_command(*command, *SMALLER.get(command[0], []))
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
    assert "nothing but the arm differs" in done.stdout
    again = oelm_command(*commands[1], *SMALLER["train"])
    assert "this run is finished" in again.stdout


def test_a_local_bert_is_frozen_and_fine_tuned_as_printed(tmp_path, monkeypatch):
    pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")
    import torch
    import transformers

    from tiny_transformers import tiny

    monkeypatch.chdir(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "good", "bad", "film", "book", "was", "not", "very"]
    tokenizer = transformers.BertTokenizer({word: number for number, word in enumerate(words)})
    tokenizer.save_pretrained("my-bert")
    tiny("bert", "BertForMaskedLM").save_pretrained("my-bert")
    (tmp_path / "reviews.tsv").write_text("a good film\t1\na bad book\t0\nthe book was not very good\t0\n")
    section = README[README.index("### Hugging Face models") : README.index("### Our GPT in transformers")]
    block = "\n".join(line.removeprefix("    ") for line in section.splitlines() if line.startswith("    "))
    names: dict = {}
    exec(block, names)
    stock = transformers.BertForSequenceClassification.from_pretrained("my-bert")
    again = oelm.load("my-frozen-bert")
    moved = {
        name
        for (name, one), (_, other) in zip(stock.named_parameters(), again.named_parameters(), strict=True)
        if "classifier" not in name and not torch.equal(one, other)
    }
    assert moved
    assert not any("query" in name or "key" in name for name in moved)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_lead_to_files(link):
    assert (REPOSITORY / link).exists()


def test_every_file_of_the_tree_is_there():
    tree = README[README.index("    src/oelm/") : README.index("[ARCHITECTURE.md]")]
    names = re.findall(r"^      (\w+(?:\.py|/))", tree, flags=re.MULTILINE)
    assert names
    for name in names:
        assert (REPOSITORY / "src" / "oelm" / name).exists(), name
