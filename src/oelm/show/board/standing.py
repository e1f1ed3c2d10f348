"""Where a study stands, checked: its plan, its verdicts and what they rest on, as the report computes them.

This reads every run whole and needs scipy, so it is computed in a thread beside the server, and again only when
something has changed. What has not changed since is remembered.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oelm.analysis.findings import Findings, ScopedVerdict
from oelm.core.accounting import training_flops_per_token
from oelm.core.config import ResolvedRun
from oelm.execution.looking import why_unstarted
from oelm.execution.progress import progress_of, seconds_left
from oelm.machine.errors import UserError
from oelm.machine.visible import visible
from oelm.show import quality
from oelm.show.article import Paragraph, Table
from oelm.show.board.glance import Remembered
from oelm.show.board.places import RunPlace, StudyPlace
from oelm.show.board.words import say_on_page
from oelm.show.cautions import cautions, registration_text
from oelm.show.figures.canvas import Look, look_of
from oelm.show.tables import label_in
from oelm.show.verdicts import outcome_in_short, verdict_box
from oelm.show.words import LANGUAGES, say, say_of
from oelm.study.claims.kinds import KINDS, OF_DIFFERENCES
from oelm.study.declaration import Language, Study, in_language
from oelm.study.plan import Plan, PlannedRun, planned
from oelm.study.registration import Registration, registration_of
from oelm.study.scaled import arms_compared, at_main_size, size_elsewhere
from oelm.study.shelf import Shelf, StoredRun
from oelm.study.tuning import point_text


@dataclass(frozen=True)
class Standing:
    study: Study
    plan: Plan
    registration: Registration
    findings: Findings | None  # None where no run has begun
    ids: dict[Path, str]  # of the runs, as addresses have them
    expected: dict[tuple[str, str], str]  # ids of planned runs that are not there, by stage and title
    lost: set[str]  # of these, runs whose config cannot be read
    remarks: list[str]  # what could not be read
    seconds_left: float | None

    def arm_of(self) -> dict[str, str]:
        """The arm of every stored final run that the study plans, by id."""
        stored = ((run, run.stored) for run in self.plan.final)
        return {self.ids[each.directory.path]: run.arm for run, each in stored if each}

    # ---- As JSON ----

    def tree(self, language: Language) -> dict[str, Any]:
        study = self.study
        return {
            "name": study.name,
            "question": in_language(study.question, language),
            "is_complete": self.plan.is_done,
            **self._verdicts(language),
            "registration": registration_text(self.registration.as_json(), language),
            "is_registered": self.registration.entry is not None,
            "arms": arms_of(study, language, self.plan),
            "measure": study.measure.record_key or "val_loss",
            "rows": [self._row(run) for run in self.plan.runs],
            "progress": self.progress(),
            "seconds_left": self.seconds_left,
            "tuning": self._tuning(language),
            "remarks": self.remarks,
        }

    def in_short(self) -> dict[str, Any]:
        """For a line of the overview, which pages of either language are told."""
        verdicts = self.findings.verdicts if self.findings is not None else []
        return {
            language: {
                "question": in_language(self.study.question, language),
                "verdicts": [f"{each.hypothesis.name}: {outcome_in_short(each, language)}" for each in verdicts],
            }
            for language in LANGUAGES
        }

    def progress(self) -> dict[str, int]:
        plan = self.plan
        done = sum(run.has_ended for run in plan.runs)
        return {"done": done, "planned": len(plan.tuning) + plan.expected_final_runs}

    def _verdicts(self, language: Language) -> dict[str, Any]:
        """What the findings say; of a study of which nothing has begun, what would be asked of them."""
        findings = self.findings
        if findings is None:
            nothing_yet = say_on_page(language, "card.nothing_yet")
            undecided: dict[str, Any] = {
                "outcome": "undecided", "outcome_word": say(language, "outcome.undecided"), "sentence": "",
                "numbers": [], "reservations": [], "remarks": [], "incomplete": nothing_yet, "interval": None,
            }  # fmt: skip
            return {
                "missing": [nothing_yet],
                "cautions": [],
                "next_look": [],
                "cards": [
                    {"name": each.name, "claim": in_language(each.claim, language), **undecided}
                    for each in self.study.hypotheses
                ],
                "confounds": {"text": "", "header": [], "rows": []},
                "heads": [],
            }
        from oelm.show.closing import confounds
        from oelm.show.content import missing_lines
        from oelm.show.looks import what_is_next

        blocks = list(confounds(findings, language, ()))
        tables = [block for block in blocks if isinstance(block, Table)]
        texts = [block.text for block in blocks if isinstance(block, Paragraph)] + [table.caption for table in tables]
        header, rows = (tables[0].header, tables[0].rows) if tables else ([], [])
        return {
            "missing": list(missing_lines(findings, language)),
            "cautions": list(cautions(findings, language)),
            "next_look": list(what_is_next(findings, language)) if self.study.looks else [],
            "cards": cards_of(findings, language),
            "confounds": {"text": " ".join(texts), "header": header, "rows": rows},
            "heads": [
                {"arm": arm, "label": label_in(self.study, arm, language), "tables": summary.heads.last}
                for arm, summary in findings.arms.items()
                if summary.heads is not None
            ],
        }

    def _row(self, run: PlannedRun) -> dict[str, Any]:
        stored, expected = run.stored, self.expected.get((run.stage, run.title))
        lost = expected if expected in self.lost else None
        return {
            "id": self.ids.get(stored.directory.path) if stored else lost,
            "expected": None if stored or lost else expected,  # when it begins
            "run": run.title,
            "stage": run.stage,
            "arm": run.arm,
            "seed": run.seed,
            "point": point_text(run.point) if run.point else "",
            "state": "damaged" if lost else run.state,
            "why": why_unstarted(self.plan, run),
            "error": stored.error if stored else None,
        }

    def _tuning(self, language: Language) -> list[dict[str, Any]]:
        """Against each key of the grid, at each size: the lowest loss of every arm at each value, so far."""
        panels = []
        for key in self.plan.grid:
            label = say(language, "axis.learning_rate") if key == "training.learning_rate" else key
            by_size: dict[str | None, list[dict[str, Any]]] = {None: []}  # what is at the main size comes first
            for arm in self.study.arms:
                if found := self._tuned(arm, key, language):
                    by_size.setdefault(size_elsewhere(self.study, arm), []).append(found)
            for size, arms in by_size.items():
                name = f"{label} ({size})" if size else label
                axis = say(language, "axis.tuning_loss")
                panels.append({"key": f"{key} {size}", "label": name, "axis": axis, "arms": arms})
        return [panel for panel in panels if panel["arms"]]

    def _tuned(self, arm: str, key: str, language: Language) -> dict[str, Any] | None:
        losses: dict[float, list[float]] = {}
        by_point: dict[Any, list[float]] = {}
        for run in self.plan.last_round:
            if run.arm == arm and run.loss is not None:
                by_point.setdefault(run.point, []).append(run.loss)
        for point, found in by_point.items():
            losses.setdefault(dict(point)[key], []).append(sum(found) / len(found))
        if not losses:
            return None
        best = {value: min(of_value) for value, of_value in sorted(losses.items())}
        choice = self.plan.choices.get(arm)
        chosen = choice.values.get(key) if choice else None
        between = choice.loss if choice and choice.curve else None  # as the fitted curve says
        return {
            "arm": arm,
            "label": label_in(self.study, arm, language),
            "values": list(best),
            "losses": [loss if math.isfinite(loss) else None for loss in best.values()],
            "chosen": chosen,
            "chosen_loss": best.get(chosen, between) if chosen is not None else None,
            **drawn_as(look_of(self.study, arm)),
        }


def arms_of(study: Study, language: Language, plan: Plan | None = None) -> list[dict[str, Any]]:
    """The arms that curves are drawn of, as reports draw them; without a plan nobody knows what a token costs."""

    def flops_per_token(arm: str) -> float | None:
        runs = plan.by_arm[arm] if plan else []
        resolved = next((each.run for each in runs if isinstance(each.run, ResolvedRun)), None)
        return None if resolved is None else training_flops_per_token(resolved.model)

    return [
        {
            "key": arm,
            "label": label_in(study, arm, language),
            "is_baseline": arm == study.baseline,
            "size": study.main_size,
            "flops_per_token": flops_per_token(arm),
            **drawn_as(look_of(study, arm)),
        }
        for arm in at_main_size(study)
    ]


_SYMBOLS = {
    "o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross", "X": "x",
    "*": "star",
}  # fmt: skip
_DASHES = {"-": "solid", "--": "dash", "-.": "dashdot"}


def drawn_as(look: Look) -> dict[str, str]:
    """The look of an arm in reports, as the page's script calls it."""
    dash = _DASHES.get(look.line) if isinstance(look.line, str) else ",".join(f"{2 * part}px" for part in look.line[1])
    return {"colour": look.colour, "dash": dash or "solid", "symbol": _SYMBOLS[look.marker]}


def standing_of(
    study: Study,
    place: StudyPlace,
    runs: list[RunPlace],
    remembered: Remembered,
    *,
    before_each: Callable[[], None] = lambda: None,
) -> Standing:
    """Of these run directories; something may be done before each of them is read. UserError where nothing can be said
    at all."""
    from oelm.analysis.summary import findings_alone

    shelf = _shelf(place.folder(), runs, remembered, before_each)
    ids = {run.path: run.id for run in runs}
    try:
        findings = findings_alone(study, shelf, with_curves=False)
        plan = findings.plan
    except UserError:
        findings, plan = None, planned(study, shelf)  # no run has begun, or none whose data is known
    expected = _expected(plan, shelf, place.name)
    lost = {ids[directory.path] for directory in shelf.lost} & set(expected.values())
    return Standing(
        study=study,
        plan=plan,
        registration=registration_of(study, shelf),
        findings=findings,
        ids=ids,
        expected=expected,
        lost=lost,
        remarks=shelf.unreadable,
        seconds_left=_seconds_left(plan),
    )


def _shelf(folder: Path, runs: list[RunPlace], remembered: Remembered, before_each: Callable[[], None]) -> Shelf:
    places = {run.path: run for run in runs}

    def read(path: Path) -> StoredRun:
        before_each()
        found = remembered.check(places[path])
        if isinstance(found, StoredRun):
            return found
        raise found.with_traceback(None)  # it may be raised again

    return Shelf(folder, paths=list(places), read=read)


def _expected(plan: Plan, shelf: Shelf, study: str) -> dict[tuple[str, str], str]:
    """Known by the names of their directories, where it is plain which data they are of: else nothing tells them."""
    if len(shelf.data_digests) != 1:
        return {}
    unstored = [run for run in plan.runs if run.stored is None and isinstance(run.run, ResolvedRun)]
    paths = (run.directory(shelf.folder, data_digest=shelf.data_digests[0]).path for run in unstored)
    names = (visible(path.relative_to(shelf.folder).as_posix()) for path in paths)
    return {(run.stage, run.title): f"{study}/{name}" for run, name in zip(unstored, names, strict=True)}


def _seconds_left(plan: Plan) -> float | None:
    """None where nothing runs: nobody knows when it goes on."""
    running = [run for run in plan.runs if run.stored and run.stored.state == "running"]
    underway = [
        (run, progress_of(run.stored.directory, run.run.training.steps)) for run in running if run.stored is not None
    ]
    return seconds_left(plan, underway, units=len(running)) if running else None


# ---- Each hypothesis as a card: what the report's box says of it, and its interval as a page draws it ---------------


def cards_of(findings: Findings, language: Language) -> list[dict[str, Any]]:
    """While runs are missing every card says so: a verdict that may still change must not look like one that cannot."""
    return [
        asdict(verdict_box(findings, verdict, language))
        | {"incomplete": _incomplete(findings, verdict, language), "interval": _interval(findings, verdict, language)}
        for verdict in findings.verdicts
    ]


def _incomplete(findings: Findings, verdict: ScopedVerdict, language: Language) -> str | None:
    """How many of the final runs of the arms that it compares are still to come, or that others are; None: none is."""
    hypothesis, plan = verdict.hypothesis, findings.plan
    if hypothesis.evidence == "speed" and verdict.ratio is None:
        return say_on_page(language, "card.no_bench")
    is_settled = hypothesis.evidence in ("parameters", "speed") or (
        verdict.look is not None and verdict.look.is_settled
    )
    arms = {arm for pair in arms_compared(findings.study, hypothesis) for arm in pair}
    runs = [run for arm in arms for run in plan.by_arm.get(arm, [])]
    planned = sum(arm in findings.study.arms for arm in arms) * len(findings.study.seeds)
    planned -= sum(run.state == "not_needed" for run in runs)
    done = sum(run.has_ended for run in runs)
    if done < planned and not is_settled:
        return say_on_page(language, "card.incomplete", done=done, planned=planned)
    code = "card.study_incomplete.settled" if is_settled or not hypothesis.confirmatory else "card.study_incomplete"
    return None if plan.is_done else say_on_page(language, code)


def _interval(findings: Findings, verdict: ScopedVerdict, language: Language) -> dict[str, Any] | None:
    """Mean, ends and single seeds, with the edges between which the claim holds; None: nothing to draw."""
    hypothesis, measure = verdict.hypothesis, verdict.hypothesis.quality
    axis = say_of(findings.study, language, "axis.shown_difference")
    if verdict.ratio is not None:
        bounds = KINDS[hypothesis.kind].bounds((hypothesis.margin or 0.0) / 100)
        ends = {"low": verdict.ratio.low, "high": verdict.ratio.high, "mean": verdict.ratio.middle}
        region = {"from": bounds.lower, "to": bounds.upper, "origin": 1.0}
        return {**ends, **region, "seeds": [], "axis": say(language, "box.ratio")}
    show = measure.shown_difference
    bounds = KINDS[hypothesis.kind].bounds(verdict.margin or 0.0)
    start, end = quality.ends(measure, bounds.lower, bounds.upper)
    edges: dict[str, Any] = {"from": start, "to": end, "origin": 0.0, "axis": axis}
    slope = verdict.trend.slopes.get(verdict.trend.per) if verdict.trend else None
    if slope is not None:
        low, high = quality.ends(measure, slope.low, slope.high)
        return {"low": low, "high": high, "mean": show(slope.slope), "seeds": [], **edges}
    difference = verdict.difference
    if hypothesis.evidence not in OF_DIFFERENCES or difference is None or difference.mean is None:
        return None
    low, high = quality.ends(measure, difference.low, difference.high)
    seeds = [show(each) for each in difference.differences]
    return {"low": low, "high": high, "mean": show(difference.mean), "seeds": seeds, **edges}
