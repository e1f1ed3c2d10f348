"""Whether a bench measured what the study means now: by the settings that decide what a step computes, and how.

A bench of format 3 has the runs that it timed; one of format 2 has how much work a step of each arm was, which must be
exactly what the study's config gives. An arm that is not what was measured any more is part of no number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from oelm.core.accounting import as_at_first_step, step_work
from oelm.core.config import STEP_EXECUTION, Execution, ResolvedRun, Run, Settings, as_far_as_known, facts_of
from oelm.run.directory import flat
from oelm.storage.files import Damaged
from oelm.study.bench import LEAST_BLOCKS, Bench
from oelm.study.declaration import Study
from oelm.study.one_run import settings_for
from oelm.study.plan import Plan
from oelm.study.remarks import (
    DATA_DIGEST,
    Differences,
    Remark,
    difference_text,
    differences,
    some,
    stated_differences,
)
from oelm.study.shelf import Shelf

LEFT_TO_THE_MACHINE = ("auto", None)
FEWEST_OF_THE_OTHERS = 0.5  # undisturbed blocks, as a share: a weaker measurement replaces no stronger one


def bench_for(plan: Plan, shelf: Shelf) -> Bench | Damaged | None:
    """What a study's folder holds, with what of it the study no longer means."""
    stored = shelf.bench()
    if not isinstance(stored, Bench):
        return stored
    known = {run.data_digest or (run.stored.data_digest if run.stored else None) for run in plan.runs}
    return compared(stored, plan, facts=plan.facts, data_digests=filter(None, known))


def compared(bench: Bench, plan: Plan, *, facts: dict[str, Any], data_digests: Iterable[str]) -> Bench:
    """The same bench by the names of the study, with the arms whose config is another one now. `facts` is what the data
    says of the model.
    """
    bench = _by_config(bench, plan, facts)
    execution = step_execution(timed_settings(plan, plan.study.baseline).execution)
    shared, known = [*_other_execution(bench, execution)], sorted(data_digests)
    if bench.data_digest and known and bench.data_digest not in known:
        shared.append((DATA_DIGEST, bench.data_digest[:12], known[0][:12]))
    found = {
        arm: (*_other_step(bench, arm, timed_settings(plan, arm).run, facts), *shared)
        for arm in bench.seconds
        if arm in plan.study.arms
    }
    return replace(bench, other_config={arm: unlike for arm, unlike in found.items() if unlike})


def _by_config(bench: Bench, plan: Plan, facts: dict[str, Any]) -> Bench:
    """With the names that the study has now for what was measured: an arm keeps its bench under another name. Whatever
    is measured of no arm, and is called like one, has a name that no arm has.
    """
    if bench.runs is None:
        return bench
    measured = bench.runs
    declared = {arm: timed_settings(plan, arm).run for arm in plan.study.arms}

    def is_same(arm: str, name: str) -> bool:
        then, now = measured[name], declared[arm]
        is_alike = then.model.parts == now.model.parts  # starts too, which a step does not depend on
        return is_alike and not _other_settings(then, now, facts_of(then.model) | facts)

    called = {arm: arm for arm in declared if arm in measured and is_same(arm, arm)}
    for arm in declared:
        same = (name for name in measured if name not in called.values() and is_same(arm, name))
        if arm not in called and (name := next(same, None)):
            called[arm] = name
    called |= {arm: arm for arm in declared if arm in measured and arm not in called and arm not in called.values()}
    now_called = {name: arm for arm, name in called.items()}
    names = {name: now_called.get(name, f"{name} (as measured)" if name in called else name) for name in measured}
    return replace(
        bench,
        baseline=names[bench.baseline],
        seconds={names[name]: seconds for name, seconds in bench.seconds.items()},
        work=None if bench.work is None else {names[name]: work for name, work in bench.work.items()},
        runs={names[name]: run for name, run in measured.items()},
        names={arm: name for arm, name in called.items() if arm != name},
    )


def timed_settings(plan: Plan, arm: str) -> Settings:
    """Of the runs that a bench stands for: with the chosen values, where the grid is finished."""
    choice = plan.choices.get(arm)
    return settings_for(plan.study, arm, seed=plan.study.seeds[0], values=choice.values if choice else None)


def step_execution(execution: Execution) -> dict[str, Any]:
    return execution.model_dump(mode="json", include=set(STEP_EXECUTION))


def step_settings(run: Run) -> dict[str, Any]:
    """The settings that decide which operations a training step is made of.

    Left out is what only gives them other numbers (seeds, starts and gains, rates, decay, betas) and what happens
    beside them (how many steps there are, validation). The limit of the gradient stays: beyond it they are scaled.
    """
    training = {"batch_size", "gradient_clip"}
    tree = as_at_first_step(run).model_dump(mode="json", include={"model": True, "training": training})
    tree["model"].pop("pretrained", None)
    for part in tree["model"]["parts"].values():
        del part["start"], part["gain"]
    return flat(tree)


def _other_step(bench: Bench, arm: str, declared: Run, facts: dict[str, Any]) -> Differences:
    if bench.runs is not None:
        then = bench.runs[arm]
        return _other_settings(then, declared, facts_of(then.model) | facts)
    now = as_far_as_known(declared, facts)
    if bench.work is None or not isinstance(now, ResolvedRun):
        return ()
    work, work_now = bench.work[arm], step_work(as_at_first_step(now))
    unlike = [name for name in work_now if work.get(name) != work_now[name]]
    return tuple((f"{name} of a step", round(work.get(name, 0)), round(work_now[name])) for name in unlike)


def _other_settings(then: Run, declared: Run, facts: dict[str, Any]) -> Differences:
    found = differences(step_settings(then), step_settings(as_far_as_known(declared, facts)))
    return stated_differences(found, step_settings(declared))


def _other_execution(bench: Bench, now: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What the study leaves to the machine is what the machine chose, if it was left to it then too.

    A bench of format 2 does not say what was left to it.
    """
    for key, recorded in bench.execution.items():
        wanted = now[key]
        declared = LEFT_TO_THE_MACHINE if bench.declared is None else (bench.declared.get(key),)
        if wanted not in declared and place_of(wanted) != place_of(recorded):
            yield f"execution.{key}", recorded, "auto" if wanted is None else wanted


def place_of(value: Any) -> Any:
    return value.partition(":")[0] if isinstance(value, str) else value  # cuda:0 and cuda:1 are slots of one machine


def lack_of(new: Bench, *, beside: Bench, study: Study) -> str | None:
    """What a new measurement lacks that the stored one, compared with the study, has; None: it may take its place.

    The ratios have no say: keeping the benches one likes would make every claim come true.
    """
    usable = [arm for arm in beside.seconds if arm in study.arms and arm not in beside.other_config]
    if not beside.can_decide or not usable:
        return None
    if not new.can_decide:
        return f"has too few undisturbed blocks ({len(new.quiet)} of at least {LEAST_BLOCKS})"
    missing = [arm for arm in usable if arm not in new.seconds]
    if missing:
        return f"is missing {', '.join(missing)}"
    few, many = len(new.quiet), len(beside.quiet)
    return f"has {few} undisturbed blocks, but the stored one has {many}" if few < many * FEWEST_OF_THE_OTHERS else None


# ---- In words ------------------------------------------------------------------------------------------------------


def remarks_on(bench: Bench | Damaged | None, study: Study) -> list[Remark]:
    """That it measured another config, or under other names, if it did."""
    if not isinstance(bench, Bench):
        return []
    remarks: list[Remark] = []
    if bench.names:
        texts = [difference_text("", name, arm).strip() for arm, name in bench.names.items()]
        remarks.append(("bench_other_names", {"names": some(texts)}))
    if bench.other_config:
        told = differences_text(bench, study.arms)
        remarks.append(("bench_other_config", {"differences": told, "study": study.name}))
    return remarks


def differences_text(bench: Bench, arms: Iterable[str]) -> str:
    """Of these arms; each is named unless all of them that were measured differ alike."""
    measured = [arm for arm in arms if arm in bench.seconds]
    by_text: dict[str, list[str]] = {}
    for arm in measured:
        if arm in bench.other_config:
            text = some([difference_text(*each) for each in bench.other_config[arm]])
            by_text.setdefault(text, []).append(arm)
    if list(by_text.values()) == [measured]:
        return next(iter(by_text))
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in by_text.items())
