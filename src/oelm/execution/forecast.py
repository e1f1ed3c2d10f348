"""`oelm run --dry-run`: what would be started, by which commands, what it would cost, what confounds it.

Nothing is started but the probes by which an engine may measure.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oelm.core.parts import ROLES
from oelm.execution.controller import ActiveRun, Controller
from oelm.execution.engine import Slots
from oelm.execution.looking import look_lines
from oelm.execution.progress import counted, round_lines
from oelm.study.confounds import confounds
from oelm.study.declaration import Study
from oelm.study.plan import Plan


@dataclass(frozen=True)
class _Told:
    """A view that keeps what the controller says."""

    lines: list[str] = field(default_factory=list)

    def say(self, line: str) -> None:
        self.lines.append(line)

    def show(self, plan: Plan, active: list[ActiveRun]) -> None: ...


def dry_run(study: Study, slots: Slots, *, arms: list[str] | None) -> list[str]:
    """The lines to print. Runs that an engine already has are named, and not counted among those to be started."""
    told = _Told()
    controller = Controller(study, slots, told, arms)
    outlook = controller.outlook()
    head = [
        f"study {study.name}: {counted(outlook.plan, controller.active)}",
        *round_lines(outlook.plan),
        *outlook.remarks,
        *look_lines(outlook.plan),
    ]
    damage = controller.shelf.damage_lines
    forecast = slots.forecast(outlook.now, outlook.later)
    return [*head, *damage, *told.lines, *forecast, "", *confound_lines(study, outlook.plan), "nothing was started"]


def confound_lines(study: Study, plan: Plan) -> list[str]:
    """Every difference between the arms of a hypothesis that is not its declared treatment."""
    lines = []
    for name, found in confounds(study, plan).items():
        for each in found:
            explained = f" (explained: {each.explained})" if each.explained else ""
            lines.append(f"confound in {name}: {each.key} is {each.treatment} / {each.control}{explained}")
        varied = next(claim.varies for claim in study.hypotheses if claim.name == name)
        for word in varied:
            elsewhere = [each.key for each in found if each.key in [f"{role}.{word}" for role in ROLES]]
            if elsewhere:
                say = f"  `{word}` in varies means that of queries and keys; if they belong to the question, add"
                lines.append(f"{say} {', '.join(elsewhere)}")
    return lines or ["confounds: none found"]
