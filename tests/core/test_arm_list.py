"""`oelm arms` shows every arm once, in its group, with the share that is counted on the model itself."""

import re

import pytest
import torch

from oelm.core.arm_list import STORIES_VOCABULARY, arm_lines, list_lines
from oelm.core.arms import ARMS, GPT_ARMS, GROUPS, PRETRAINED_ARMS
from oelm.core.config import PRESETS, Model, resolved, resolved_model
from oelm.core.model.parameters import counts_by_part
from oelm.core.model.transformer import GPT
from oelm.core.options import ADDITIONS
from oelm.core.parts import AS_GIVEN, BASELINE, ROLES
from oelm.core.settings import load_settings
from oelm.machine.errors import UserError
from small_runs import REPOSITORY

GPT_PRESETS = [name for name, run in PRESETS.items() if isinstance(run.model, Model)]


def counted(arm: str, preset: str) -> dict[str, tuple[int, int]]:
    """Role -> (total, frozen), counted on the model."""
    run = resolved(load_settings(preset=preset, arm=arm).run, {"vocabulary": STORIES_VOCABULARY})
    with torch.device("meta"):
        by_part = counts_by_part(GPT(run.model))
    return {role: tuple(sum(n[side] for (each, _), n in by_part.items() if each == role) for side in (0, 1))
            for role in [*ROLES, *ADDITIONS] if any(each == role for each, _ in by_part)}  # fmt: skip


def share(numbers) -> str:
    total, frozen = (sum(each[side] for each in numbers) for side in (0, 1))
    return f"{100 * (total - frozen) / max(1, total):.1f} %"


def trained(numbers: dict[str, tuple[int, int]]) -> int:
    """Of queries, keys and what is added."""
    return sum(total - frozen for role, (total, frozen) in numbers.items() if role in ("query", "key", *ADDITIONS))


@pytest.mark.parametrize("preset", GPT_PRESETS)
def test_every_arm_is_listed_once_with_the_shares_that_are_trained(preset):
    lines = list(list_lines(preset))
    assert f"at preset {preset} (vocabulary " in lines[0]
    found = [re.match(r"  (\w+) +(-|[\d.<]+ %) +(-|[\d.]+ %)  ", line) for line in lines]
    listed = {match[1]: (match[2], match[3]) for match in found if match}
    assert list(listed) == list(ARMS)
    baseline = trained(counted("trained", preset))
    for name in GPT_ARMS:
        numbers = counted(name, preset)
        assert listed[name][1] == share(numbers.values()), name
        of_queries_and_keys = 100 * trained(numbers) / baseline
        shown = listed[name][0].removesuffix(" %")
        assert (0 < of_queries_and_keys < 0.01) if "<" in shown else abs(float(shown) - of_queries_and_keys) <= 0.05
    assert {listed[name] for name in PRETRAINED_ARMS} == {("-", "-")}


def test_an_arm_that_cannot_exist_at_this_size_says_so_in_its_line(monkeypatch):
    model = PRESETS["tiny"].model.model_copy(update={"num_heads": 2})
    monkeypatch.setitem(PRESETS, "tiny", PRESETS["tiny"].model_copy(update={"model": model}))
    (line,) = [line for line in list_lines("tiny") if line.startswith("  frozen_quarter ")]
    assert "not at this size (parts.query.share: 0.25 of 2 heads is not a whole number)" in line
    with pytest.raises(UserError, match=r"arms frozen_quarter: parts\.query\.share: 0.25 of 2 heads"):
        list(arm_lines("frozen_quarter", "tiny"))


def test_one_arm_shows_its_options_with_numbers():
    text = "\n".join(arm_lines("frozen_orthogonal_repaired", "medium-512"))
    for line in ("a trained temperature per head", "a residual of rank 4 on Q, K", "a shift of K per channel"):
        assert line in text
    assert "trained numbers are 1.66 % of the baseline's queries and keys" in text
    page = " ".join((REPOSITORY / "docs" / "arms.md").read_text().split())
    assert "52,272 trained numbers to Medium-512, 1.66 % of the baseline's queries and keys" in page


def test_groups_hold_every_arm_once_in_order():
    assert [name for members in GROUPS.values() for name in members] == list(ARMS)
    headings = [line.removesuffix(":") for line in list_lines() if line.endswith(":")]
    assert headings == list(GROUPS)


@pytest.mark.parametrize("arm", ARMS)
def test_one_arm_shows_exactly_the_parts_that_differ_and_their_counts(arm):
    lines = list(arm_lines(arm, "small"))
    named, _, tail = "\n".join(lines).partition("\n\n")
    others = AS_GIVEN if arm in PRETRAINED_ARMS else BASELINE
    differing = {ROLES[role].words[0] for role, part in ARMS[arm].parts.items() if part != others.of(role)}
    assert {words for words in (role.words[0] for role in ROLES.values()) if f"\n  {words}  " in named} == differing
    assert ("every other part: " in named) == bool(differing)
    if arm in PRETRAINED_ARMS:
        assert "sizes come with its data" in tail
        return
    numbers = counted(arm, "small")
    for role, (total, frozen) in numbers.items():
        words = (ROLES | ADDITIONS)[role].words[0]
        (line,) = [line for line in tail.splitlines() if line.startswith(f"  {words}  ")]
        assert re.findall(r"[\d,]{2,}|\b\d\b(?!\.)", line)[:1] == [f"{total:,}"]
        assert line.split("  ")[-1].strip() == f"{share([(total, frozen)])} trained"
    assert tail.splitlines()[-2].endswith(f"{share(numbers.values())} trained")


def test_a_frozen_embedding_freezes_the_output_layer_and_it_is_said():
    assert any("so is the output layer" in line for line in arm_lines("frozen_embedding"))
    assert not any("output layer" in line for line in arm_lines("trained"))
    sizes = resolved_model(Model(vocabulary=8))
    assert ROLES["token_embedding"].note(sizes)
    assert not ROLES["token_embedding"].note(sizes.model_copy(update={"tied": False}))


def test_an_arm_has_all_its_names():
    assert list(arm_lines("oelm_freeze")) == list(arm_lines("frozen_head_orthogonal"))
    with pytest.raises(UserError, match=r"arm: unknown name 'frozn_up'; did you mean frozen_up\?"):
        list(arm_lines("frozn_up"))


def test_a_preset_whose_sizes_are_unknown_is_refused():
    with pytest.raises(UserError, match=r"--preset fine-tuning: .* choose a preset of a GPT"):
        list(list_lines("fine-tuning"))


def test_the_vocabulary_assumed_is_that_of_the_embedded_corpus():
    from inspect import getsource

    from oelm.data import prepare

    assert f'"bpe:{STORIES_VOCABULARY}" if source == "stories"' in getsource(prepare.prepare)
