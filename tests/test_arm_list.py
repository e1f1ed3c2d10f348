"""`oelm arms` shows every arm once, in its group, with the share that is counted on the model itself."""

import re

import pytest
import torch

from oelm.arm_list import STORIES_VOCABULARY, arm_lines, list_lines
from oelm.arms import ARMS, GPT_ARMS, GROUPS, PRETRAINED_ARMS
from oelm.config import PRESETS, Model, resolved
from oelm.errors import UserError
from oelm.model.parameters import counts_by_part
from oelm.model.transformer import GPT
from oelm.settings import load_settings
from oelm.treatment.parts import AS_GIVEN, BASELINE, ROLES

GPT_PRESETS = [name for name, run in PRESETS.items() if isinstance(run.model, Model)]


def counted(arm: str, preset: str) -> dict[str, tuple[int, int]]:
    """Role -> (total, frozen), counted on the model."""
    run = resolved(load_settings(preset=preset, arm=arm).run, {"vocabulary": STORIES_VOCABULARY})
    with torch.device("meta"):
        by_part = counts_by_part(GPT(run.model))
    return {role: tuple(sum(n[side] for (each, _), n in by_part.items() if each == role) for side in (0, 1))
            for role in ROLES}  # fmt: skip


def share(numbers) -> str:
    total, frozen = (sum(each[side] for each in numbers) for side in (0, 1))
    return f"{100 * (total - frozen) / max(1, total):.1f} %"


@pytest.mark.parametrize("preset", GPT_PRESETS)
def test_every_arm_is_listed_once_with_the_share_that_is_trained(preset):
    lines = list(list_lines(preset))
    assert f"at preset {preset} (vocabulary " in lines[0]
    found = [re.match(r"  (\w+) +(- |[\d.]+ %)", line) for line in lines]
    listed = {match[1]: match[2].strip() for match in found if match}
    assert list(listed) == list(ARMS)
    for name in GPT_ARMS:
        assert listed[name] == share(counted(name, preset).values()), name
    assert {listed[name] for name in PRETRAINED_ARMS} == {"-"}


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
    if arm in PRETRAINED_ARMS:
        assert "sizes come with its data" in tail
        return
    numbers = counted(arm, "small")
    for role, (total, frozen) in numbers.items():
        (line,) = [line for line in tail.splitlines() if line.startswith(f"  {ROLES[role].words[0]}  ")]
        assert re.findall(r"[\d,]{2,}|\b\d\b(?!\.)", line)[:1] == [f"{total:,}"]
        assert line.split("  ")[-1].strip() == f"{share([(total, frozen)])} trained"
    assert tail.endswith(f"{share(numbers.values())} trained")


def test_a_frozen_embedding_freezes_the_output_layer_and_it_is_said():
    assert any("so is the output layer" in line for line in arm_lines("frozen_embedding"))
    assert not any("output layer" in line for line in arm_lines("trained"))


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
