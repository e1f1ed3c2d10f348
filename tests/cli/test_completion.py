"""What a Tab offers in bash and zsh: verbs, studies, arms, runs; quickly, and whatever is damaged."""

import json
import subprocess
import sys

import pytest

from oelm.cli import main
from oelm.core.arms import ARMS
from small_runs import child_environment

SHELLS = ("bash", "zsh")


def request_of(shell: str, line: str) -> dict[str, str]:
    """The environment in which the shell's script asks, with the cursor at the end of the line."""
    words = line.split(" ")
    asked = {"_OELM_COMPLETE": f"complete_{shell}"}
    if shell == "bash":
        return asked | {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    return asked | {"_TYPER_COMPLETE_ARGS": line}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder with a study of its own, a damaged one, and some runs, of which only the names matter."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "studies").mkdir()
    arms = "{gpt: {arm: trained}, frozen: {arm: frozen_normal}, frozen_too: {arm: frozen_orthogonal}}"
    (folder / "studies" / "mine.yaml").write_text(f"question: x\nbase: {{preset: tiny}}\narms: {arms}\nseeds: [0]\n")
    (folder / "studies" / "damaged.yaml").write_bytes(b"arms: [\xff")
    for name in ("mine/gpt-s0-abc", "mine/frozen-s0-def", "mine/tuning/gpt-s1000-abc", "alone"):
        (folder / "runs" / name).mkdir(parents=True)
        (folder / "runs" / name / "config.json").write_text("{}")
    (folder / "runs" / "mine" / "no-run").mkdir()
    return folder


@pytest.fixture
def offered(project, monkeypatch, capsys):
    def words_offered(shell: str, line: str) -> set[str]:
        monkeypatch.chdir(project)
        for name, value in request_of(shell, line).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["oelm"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        out, err = capsys.readouterr()
        assert err == ""
        if shell == "bash":
            return set(out.split())
        lines = out.removeprefix("_arguments '*: :((").removesuffix("))'\n").splitlines()
        return {json.loads(each.partition('":"')[0].rstrip('"') + '"') for each in lines if each.startswith('"')}

    return words_offered


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("oelm re", {"register", "report", "remote"}),
        ("oelm remote lab s", {"sync", "status", "stop"}),
        ("oelm run m", {"mine"}),
        ("oelm report de", {"demo", "demo_recall"}),
        ("oelm remote lab pull d", {"damaged", "demo", "demo_recall"}),
        ("oelm train --arm frozen_h", {name for name in ARMS if name.startswith("frozen_h")}),
        ("oelm run mine --arms fr", {"frozen", "frozen_too"}),
        ("oelm run mine --arms gpt,frozen,f", {"gpt,frozen,frozen_too"}),
        ("oelm bench studies/mine.yaml --arms g", {"gpt"}),
        ("oelm run damaged --arms f", set()),
        ("oelm logs gpt-s", {"gpt-s0-abc", "gpt-s1000-abc"}),
        ("oelm diagnose runs/mine/g", {"runs/mine/gpt-s0-abc"}),
        ("oelm diagnose runs/mine/t", {"runs/mine/tuning/gpt-s1000-abc"}),
        ("oelm generate runs/a", {"runs/alone"}),
        ("oelm verify m", {"mine"}),
        ("oelm export elsewhere/", set()),
    ],
)  # fmt: skip
def test_a_tab_offers_what_is_there(offered, line, expected):
    assert [offered(shell, line) for shell in SHELLS] == [expected] * 2


@pytest.mark.parametrize("shell", SHELLS)
def test_without_an_offer_zsh_and_bash_go_on_with_files(project, shell):
    ended = "try:\n    main()\nfinally:\n    assert 'torch' not in sys.modules"
    code = f"import sys\nfrom oelm.__main__ import main\n{ended}"
    environment = child_environment(**request_of(shell, "oelm diagnose nothing"))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == ("_files" if shell == "zsh" else "")


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_for_the_shell_is_installed(tmp_path, shell):
    """In a home of its own; the shell is told by its name, as the command is not started by one here."""
    code = (
        "import sys\nimport shellingham\n"
        f"shellingham.detect_shell = lambda *words: ({shell!r}, {shell!r})\n"
        "sys.argv = ['oelm', '--install-completion']\nfrom oelm.__main__ import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=child_environment(HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"{shell} completion installed in {tmp_path}" in done.stdout
    written = "\n".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "_OELM_COMPLETE=complete_" in written
