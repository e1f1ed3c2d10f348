"""Printed commands exist, the walk works on a small corpus, links lead somewhere, and both languages are in step."""

import re
import shlex

import pytest

import oelm
from chinese_words import OTHER_NAMES
from small_runs import REPOSITORY, oelm_command

PAGES = {
    str(path.relative_to(REPOSITORY)): path.read_text(encoding="utf-8")
    for path in (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"))
}
README, ONE_RUN = PAGES["README.md"], PAGES["docs/one_run.md"]
BOTH_LANGUAGES = {"README.md": "README.zh.md", "docs/one_run.md": "docs/one_run.zh.md"}
LONGEST_README = 134  # lines; what is looked up stands in docs/


def printed(page: str) -> list[str]:
    """The lines of its code blocks, without their comments."""
    lines = [line.partition("#")[0].rstrip() for line in page.splitlines() if line.startswith("    ")]
    return [line for line in lines if line]


COMMANDS = sorted({line.strip() for page in PAGES.values() for line in printed(page) if line.startswith("    oelm ")})
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
    walk = printed(ONE_RUN[: ONE_RUN.index("## Text")])
    commands = [shlex.split(line)[1:] for line in walk]
    verbs = [each[0] for each in commands]
    assert verbs == ["prepare", "train", "diagnose", "generate", "train", "board", "verify"]
    said = {}
    for command in (each for each in commands if each[0] != "board"):  # which serves until it is stopped
        done = oelm_command(*command, *SMALLER.get(command[0], []))
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
        said[command[0]] = done.stdout
    assert "runs/frozen: bit-equal; validation loss " in said["verify"]
    again = oelm_command(*commands[1], *SMALLER["train"])
    assert "this run is finished" in again.stdout


def test_a_local_bert_is_frozen_and_fine_tuned_as_printed(tmp_path, monkeypatch):
    pytest.importorskip("accelerate", reason="pip install accelerate")
    import torch
    import transformers

    from tiny_transformers import tiny

    monkeypatch.chdir(tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "good", "bad", "film", "book", "was", "not", "very"]
    tokenizer = transformers.BertTokenizer({word: number for number, word in enumerate(words)})
    tokenizer.save_pretrained("my-bert")
    tiny("bert", "BertForMaskedLM").save_pretrained("my-bert")
    (tmp_path / "reviews.tsv").write_text("a good film\t1\na bad book\t0\nthe book was not very good\t0\n")
    page = PAGES["docs/huggingface.md"]
    section = page[page.index("## In ten lines") : page.index("## Applying an arm")]
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


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_files(name):
    folder = (REPOSITORY / name).parent
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", PAGES[name]):
        assert link.startswith("https://") or (folder / link).exists(), link


def test_git_keeps_the_pictures_of_findings_that_a_page_shows_and_no_others():
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("docs/findings/*/*.md")]
    shown = {
        (page.parent / link).relative_to(REPOSITORY).as_posix()
        for page in pages
        for link in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    }
    ignored = (REPOSITORY / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert "/docs/findings/*/report/figures/*" in ignored
    kept = {line.removeprefix("!/") for line in ignored if line.startswith("!/docs/findings/")}
    assert kept == {picture for picture in shown if "/report/" in picture}
    assert [picture for picture in shown if not (REPOSITORY / picture).is_file()] == []


def test_the_readme_is_short():
    assert len(README.splitlines()) <= LONGEST_README


def test_the_index_names_every_page():
    listed = set(re.findall(r"\]\(([^)/]+\.md)\)", PAGES["docs/README.md"]))
    moved = {"docs/documents.md"}  # an old address, which says where its page is now
    assert {f"docs/{name}" for name in listed} | moved | {"docs/README.md"} == {
        name for name in PAGES if name.startswith("docs/")
    }


@pytest.mark.parametrize(("english", "chinese"), BOTH_LANGUAGES.items())
def test_both_languages_have_the_same_headings_and_commands(english, chinese):
    def levels(page: str) -> list[str]:
        return re.findall(r"^#+(?= )", page, flags=re.MULTILINE)

    assert levels(PAGES[english]) == levels(PAGES[chinese])
    assert printed(PAGES[english]) == printed(PAGES[chinese])


@pytest.mark.parametrize("name", BOTH_LANGUAGES.values())
def test_a_verdict_and_a_study_have_one_name_in_chinese(name):
    assert "实验" in PAGES[name]
    for other in OTHER_NAMES:
        assert other not in PAGES[name], other


def test_whatever_the_architecture_names_is_there():
    page, package = PAGES["ARCHITECTURE.md"], REPOSITORY / "src" / "oelm"
    for named in re.findall(r"(?<![\w/.])((?:\w+/)*\w+\.(?:py|yaml))\b", page):
        within = (REPOSITORY / named).is_file() or any(package.glob(f"**/{named}"))
        assert within or named == "study.yaml", named
    rooms = re.findall(r"^\| `(\w+)/` \|", page, flags=re.MULTILINE)
    assert sorted([*rooms, "studies"]) == sorted(
        path.name for path in package.iterdir() if path.is_dir() and path.name != "__pycache__"
    )


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_every_study_that_comes_with_oelm_is_listed(page):
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    studies = sorted(file.stem for file in (REPOSITORY / "src/oelm/studies").glob("*.yaml"))
    assert [name for name in studies if f"`{name}`" not in text] == []
