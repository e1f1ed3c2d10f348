"""A study by its sizes: which of its arms are one declared arm at several sizes, and which a claim is about."""

from __future__ import annotations

from oelm.study.declaration import Hypothesis, SizedArm, Study, Text
from oelm.study.sizes import cell_name


def sized_arms(study: Study) -> dict[str, SizedArm]:
    """By their names; none where the study has no sizes."""
    return {name: arm for name, arm in study.arms.items() if isinstance(arm, SizedArm)}


def sizes_of(study: Study) -> list[str]:
    return list(dict.fromkeys(arm.size for arm in sized_arms(study).values()))


def families_of(study: Study) -> list[str]:
    """The arms as they were declared."""
    return list(dict.fromkeys(family_of(study, arm) for arm in study.arms))


def family_of(study: Study, arm: str) -> str:
    entry = study.arms.get(arm)
    return entry.family if isinstance(entry, SizedArm) else arm


def size_elsewhere(study: Study, arm: str) -> str | None:
    """The size of an arm, unless it is the main one."""
    entry = study.arms.get(arm)
    return entry.size if isinstance(entry, SizedArm) and entry.size != study.main_size else None


def label_at_any_size(study: Study, arm: str) -> Text | None:
    """Of an arm at one size, or as it was declared."""
    entry = study.arms.get(arm) or next(each for each in sized_arms(study).values() if each.family == arm)
    return entry.label


def dials_of(study: Study) -> dict[str, list[str]]:
    """Sizes by the dial that they are points of."""
    found: dict[str, list[str]] = {}
    for arm in sized_arms(study).values():
        for dial in arm.dials:
            sizes = found.setdefault(dial, [])
            sizes += [arm.size] if arm.size not in sizes else []
    return found


def at_main_size(study: Study) -> list[str]:
    """The arms that tables, curves and the bench are about: all, where the study has no sizes."""
    sized = sized_arms(study)
    return [name for name in study.arms if not sized or sized[name].size == study.main_size]


def arms_by_name(study: Study) -> dict[str, list[str]]:
    """The arms that a name stands for: an arm as it is declared, a size, or one at the other."""
    found: dict[str, list[str]] = {}
    for name, arm in sized_arms(study).items():
        for group in (arm.family, arm.size):
            found.setdefault(group, []).append(name)
    return found | {name: [name] for name in study.arms}


def compared_with(study: Study, arm: str) -> str:
    """The baseline at the size of an arm; the arm itself where the baseline is not run at it."""
    entry = study.arms[arm]
    if not isinstance(entry, SizedArm):
        return study.baseline
    name = cell_name(family_of(study, study.baseline), entry.size)
    return name if name in study.arms else arm


def arms_compared(study: Study, hypothesis: Hypothesis) -> list[tuple[str, str]]:
    """Treatment and control, once for every size that a claim is about; of a contrast, those at `size` first."""
    pair = hypothesis.treatment, hypothesis.control
    if hypothesis.against is not None:
        one, other = (cell_name(family_of(study, arm), hypothesis.against) for arm in pair)
        return [pair, (one, other)]
    if hypothesis.evidence != "scale":
        return [pair]
    assert isinstance(hypothesis.over, list)  # as reading it leaves it
    return [(cell_name(hypothesis.treatment, size), cell_name(hypothesis.control, size)) for size in hypothesis.over]


def is_carried(study: Study, size: str) -> bool:
    """Whether what is tuned at other sizes is carried over to this one."""
    return study.tuning is not None and study.tuning.at is not None and size not in study.tuning.at


def arms_of_scale(study: Study) -> set[str]:
    """At every size that a claim about scale compares."""
    claims = (each for each in study.hypotheses if each.evidence == "scale")
    return {arm for each in claims for pair in arms_compared(study, each) for arm in pair}
