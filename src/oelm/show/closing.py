"""The last pages: conclusions and next steps, confounds, runs without a result, provenance, how to cite."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator
from typing import Any, Literal

import oelm
from oelm.analysis.beside import compares
from oelm.analysis.findings import NOT_FITTED, Findings, Verdict
from oelm.core.config import Encoder
from oelm.show import cautions, numbers, quality, tables, verdicts
from oelm.show.arms_in_words import note_sentence
from oelm.show.article import Block, Bullets, Code, Facts, Heading, Paragraph, Table
from oelm.show.tables import captioned, label_of, table
from oelm.show.words import WORDS, in_words, say
from oelm.study.claims.kinds import KINDS
from oelm.study.confounds import SEEDS
from oelm.study.declaration import Language, in_language
from oelm.study.plan import PlannedRun
from oelm.study.remarks import value_text

LISTED_ROWS = 60  # of the article; every run stands in runs.csv
LONGEST_ERROR = 160  # characters of what happened to a run
NOTES_SHOWN_ELSEWHERE = (
    "fixed_learning_rate", "few_seeds", "edge_optimum", "all_points_diverged", "tuning_at_floor", "at_floor",
    *NOT_FITTED, *cautions.NOTES,
)  # fmt: skip


# ---- Conclusions ---------------------------------------------------------------------------------------------------


def conclusions(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.conclusions"))
    yield _verdict_table(findings, language) if findings.verdicts else Paragraph(say(language, "verdicts.none"))
    yield from _consequences(findings, language)
    if steps := list(_next_steps(findings, language)):
        yield Bullets(steps, title=say(language, "next.title"))


def _verdict_table(findings: Findings, language: Language) -> Table:
    rows = []
    for verdict in findings.verdicts:
        claim, number = in_language(verdict.hypothesis.claim, language), _number(verdict, language)
        rows.append([verdict.hypothesis.name, claim, number, verdicts.outcome_in_short(verdict, language)])
    header = [say(language, f"column.{name}") for name in ("hypothesis", "claim", "number", "outcome")]
    caption = captioned(findings, language, "conclusions.table")
    return Table(caption, header, rows, ["left", "left", "right", "left"])


def _number(verdict: Verdict, language: Language) -> str:
    """What a claim is decided by, in short."""
    measure, trend = verdict.hypothesis.quality, verdict.trend
    if verdict.ratio is not None:
        return f"× {numbers.ratio(verdict.ratio.middle)}"
    if trend is not None and trend.per in trend.slopes:
        change = quality.difference_with_unit(measure, trend.slopes[trend.per].slope, language)
        return say(language, "scale.per_doubling", change=change)
    if (test := verdict.sign_test) is not None:
        return say(language, "conclusions.pairs", ahead=len(test.ahead), behind=len(test.behind))
    return quality.difference_with_unit(measure, verdict.difference.mean if verdict.difference else None, language)


def _consequences(findings: Findings, language: Language) -> Iterator[Block]:
    """What the study said would follow, from the claims about its main arm that are decided."""
    names_by_side: dict[str, list[str]] = {}
    for verdict in findings.verdicts:
        if compares(verdict.hypothesis, findings.main_arm, findings.study) and (side := side_of(verdict)) is not None:
            names_by_side.setdefault(side, []).append(verdict.hypothesis.name)
    if "better" in names_by_side:
        names_by_side.pop("equal", None)  # which it implies
    for place, names in names_by_side.items():
        consequence = getattr(findings.study.consequences, place)
        if consequence is not None:
            facts = {"names": say(language, "list_comma").join(names), "text": in_language(consequence, language)}
            yield Paragraph(say(language, "conclusions.consequence", **facts), tone="note")


def side_of(verdict: Verdict) -> Literal["better", "equal", "worse"] | None:
    """Where a decided claim about quality places the treatment; None: nowhere."""
    hypothesis = verdict.hypothesis
    if hypothesis.evidence != "quality" or verdict.outcome not in ("supported", "refuted"):
        return None
    bounds = KINDS[hypothesis.kind].bounds(verdict.margin or 0.0)
    mean = verdict.difference.mean if verdict.difference else None
    if verdict.outcome == "supported":
        return "better" if bounds.upper is not None and bounds.upper <= 0 else "equal"
    if bounds.lower is not None and mean is not None and mean < bounds.lower:
        return "better"
    return "worse" if bounds.upper is not None and bounds.upper >= 0 else None


def _next_steps(findings: Findings, language: Language) -> Iterator[str]:
    """What this study itself still needs; then what only another one can say."""
    comma = say(language, "list_comma")
    study = findings.study.name
    if findings.unfinished or tables.waiting_runs(findings):
        yield say(language, "next.finish", study=study)
    confounded = [each.hypothesis.name for each in findings.verdicts if each.outcome == "confounded"]
    if confounded:
        yield say(language, "next.confounds", names=comma.join(confounded))
    if findings.study.tuning is None and len(findings.arms) > 1:
        yield say(language, "next.tune")
    edges = [facts["arm"] for code, facts in findings.notes if code == "edge_optimum"]
    if edges:
        names = comma.join(label_of(findings, arm, language) for arm in dict.fromkeys(edges))
        yield say(language, "next.edge", arms=names)
    at_floor = [facts["arm"] for code, facts in findings.notes if code == "at_floor"]
    if at_floor:
        apart = say(language, "list_semicolon")  # labels may hold commas
        names = apart.join(label_of(findings, arm, language) for arm in dict.fromkeys(at_floor))
        yield say(language, "next.floor", arms=names)
    diverged = [arm for arm, summary in findings.arms.items() if summary.states.get("diverged")]
    if diverged:
        yield say(language, "next.diverged", arms=comma.join(label_of(findings, arm, language) for arm in diverged))
    if findings.plan.is_done and any(each.outcome == "undecided" or each.reservations for each in findings.verdicts):
        yield say(language, "next.fresh", study=study)


# ---- Confounds -----------------------------------------------------------------------------------------------------


def confounds(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.confounds"))
    rows = []
    for hypothesis, confound in ((each.hypothesis, one) for each in findings.verdicts for one in each.confounds):
        reason = hypothesis.explained.get(confound.key, confound.explained)
        unexplained = "confounds.seeds" if confound.key == SEEDS else "confounds.unexplained"
        explanation = say(language, unexplained) if reason is None else in_language(reason, language)
        sides = verdicts.sides_of(findings, hypothesis, confound, language)
        rows.append([hypothesis.name, confound.key, *sides, explanation])
    if not rows:
        tuned = findings.study.tuning.grid if findings.study.tuning else ()
        code = "none_but_tuned" if tuned else "none"
        code = code if findings.verdicts else "no_hypothesis"
        yield Paragraph(say(language, f"confounds.{code}", keys=", ".join(tuned)))
        return
    columns = ("hypothesis", "setting", "treatment", "control", "explained")
    yield table(findings, language, columns, rows, say(language, "confounds.table"), words=5)


# ---- Runs without a result -----------------------------------------------------------------------------------------


def unfinished(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.unfinished"))
    seeds: dict[tuple[str, ...], list[int]] = {}
    for run in findings.unfinished:
        seeds.setdefault(_unfinished_kind(findings, run, language), []).append(run.seed)
    waiting = (say(language, "stage.final"), say(language, "state.missing"), say(language, "unfinished.waiting"))
    for arm, seed in tables.waiting_runs(findings):
        seeds.setdefault((label_of(findings, arm, language), *waiting), []).append(seed)
    if not seeds:
        yield Paragraph(say(language, "unfinished.none.looks" if findings.plan.saved else "unfinished.none"))
        return
    rows = [[arm, verdicts.seed_list(which, language), *rest] for (arm, *rest), which in seeds.items()]
    columns = ("arm", "seed", "stage", "state", "error")
    yield table(findings, language, columns, rows[:LISTED_ROWS], say(language, "unfinished.table"), words=5)
    if len(rows) > LISTED_ROWS:
        yield Paragraph(say(language, "unfinished.more", count=len(rows) - LISTED_ROWS))


def _unfinished_kind(findings: Findings, run: PlannedRun, language: Language) -> tuple[str, ...]:
    """What the runs of one row share: arm, stage, state, and what happened."""
    status = run.stored.status if run.stored else {}
    where = ", ".join(f"{key.rpartition('.')[2]} {numbers.learning_rate(value)}" for key, value in run.point)
    stage = say(language, f"stage.{run.stage}") + (f" ({where})" if run.stage == "tuning" else "")
    happened = str(run.stored.error or "") if run.stored else ""
    if not happened and status.get("step") is not None and run.stored:
        happened = say(language, "unfinished.step", step=numbers.whole(status["step"]))
    state = run.state
    if run.stored and run.stored.result:  # finished, without the number that is compared
        state = "unmeasured"
        lack = {"file": run.stored.directory.result_file.name, "key": findings.study.measure.shown_key}
        happened = say(language, "unfinished.unmeasured", **lack)
    # One line, without the control characters a log may hold.
    happened = " ".join("".join(each if each.isprintable() else " " for each in happened).split())
    happened = happened if len(happened) <= LONGEST_ERROR else happened[: LONGEST_ERROR - 1] + "…"
    arm = label_of(findings, run.arm, language)
    return arm, stage, say(language, f"state.{state}"), happened or numbers.NONE


# ---- Provenance ----------------------------------------------------------------------------------------------------

_LISTS = ("source_digests", "data_digests", "devices", "processors", "precisions", "threads", "platforms", "pythons")
_LISTS_OF_SOME = ("encoder_sources", "encoder_digests", "gpus", "gpu_drivers")  # where the runs recorded them


def provenance(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.provenance"))
    registration = findings.provenance.get("registration", {})
    facts = [*_declared(findings, language), *_recorded(findings.provenance, language)]
    yield Facts([*facts, *_written_down(findings, registration, language)])
    changes = list(_changes(registration, language))
    if changes:
        yield Bullets(changes, tone="warning", title=say(language, "registration.changes"))
    remarks = [
        note_sentence(findings, code, facts, language)
        for code, facts in findings.notes
        if code not in NOTES_SHOWN_ELSEWHERE
    ]
    if remarks:
        yield Bullets(remarks, tone="note")
    if findings.study.notes:
        yield Paragraph(in_language(findings.study.notes, language))
    yield Paragraph(say(language, "files.sentence"))


def _declared(findings: Findings, language: Language) -> Iterator[tuple[str, str]]:
    """Sizes and training of the baseline: the arms that differ from it are among the confounds."""
    run = next((run.run for run in findings.plan.runs if run.arm == findings.study.baseline), None)
    if run is None:
        return
    model, training = run.model, run.training
    sizes = {
        "d_model": model.d_model, "num_layers": model.num_layers, "num_heads": model.num_heads, "d_ff": model.d_ff,
        "seq_len": model.seq_len, "vocabulary": model.vocabulary, "dropout": model.dropout,
    }  # fmt: skip
    if isinstance(model, Encoder):
        sizes |= {"mean_length": model.mean_length, "labels": model.labels, "pretrained": model.pretrained}
    yield say(language, "provenance.model"), ", ".join(f"{name} {_size(value)}" for name, value in sizes.items())
    final = next((run.run.training for run in findings.plan.final if run.arm == findings.study.baseline), training)
    plan = {
        "steps": final.steps, "batch_size": final.batch_size, "warmup_steps": final.warmup_steps,
        "weight_decay": final.weight_decay, "gradient_clip": final.gradient_clip,
    }  # fmt: skip
    yield say(language, "provenance.training"), ", ".join(f"{name} {_size(value)}" for name, value in plan.items())
    yield say(language, "provenance.seeds"), verdicts.seed_list(list(findings.study.seeds), language)


def _size(value: float | None) -> str:
    if value is None:
        return numbers.NONE
    if isinstance(value, bool):
        return str(value).lower()
    return numbers.whole(value) if float(value).is_integer() else f"{value:g}"


def _recorded(tree: dict[str, Any], language: Language) -> Iterator[tuple[str, str]]:
    """What the runs wrote down about themselves."""
    joined = say(language, "list_semicolon").join
    yield say(language, "provenance.study_digest"), numbers.digest(tree.get("study_digest"))
    counts = {"runs": tree.get("runs", 0), "final": tree.get("final_runs", 0), "tuning": tree.get("tuning_runs", 0)}
    yield say(language, "provenance.runs"), say(language, "provenance.runs_value", **counts)
    seals = {name: numbers.whole(tree.get(f"{name}_runs", 0)) for name in ("sealed", "unsealed")}
    yield say(language, "provenance.seals"), say(language, "provenance.seals_value", **seals)
    if not counts["runs"]:
        return
    commits = [_commit(entry, language) for entry in tree.get("commits", [])]
    yield say(language, "provenance.commits"), joined(commits) or say(language, "provenance.unknown")
    for name in (*(name for name in _LISTS_OF_SOME if tree.get(name)), *_LISTS):
        values = [verdicts.short_digests(str(value)) for value in tree.get(name, [])]
        yield say(language, f"provenance.{name}"), joined(values) or say(language, "provenance.unknown")
    versions = [f"{name} {', '.join(map(str, values))}" for name, values in tree.get("versions", {}).items() if values]
    yield say(language, "provenance.versions"), joined(versions) or say(language, "provenance.unknown")
    parts = {"total": "", "final": "final_", "tuning": "tuning_"}
    spent = {name: numbers.duration(tree.get(f"{part}compute_seconds")) for name, part in parts.items()}
    yield say(language, "provenance.compute"), say(language, "provenance.compute_value", **spent)
    if bench := tree.get("bench"):
        created = bench["created"] or say(language, "provenance.unknown")
        facts = {"created": created, "blocks": bench["blocks"], "undisturbed": bench["undisturbed"]}
        yield say(language, "provenance.bench"), say(language, "provenance.bench_value", **facts)
    if check := tree.get("check"):
        yield say(language, "provenance.check"), _checked(check, language)


def _checked(check: dict[str, Any], language: Language) -> str:
    """How many checks of the machine passed, which failed and why, and what was measured."""
    if check["damage"]:
        return verdicts.short_digests(check["damage"])
    results = check["results"]
    counts = {state: sum(each["state"] == state for each in results) for state in ("pass", "fail", "skipped")}
    device = ", ".join(check["gpus"] or []) or check["processor"] or say(language, "provenance.unknown")
    made = check["created"] or say(language, "provenance.unknown")
    lines = [say(language, "provenance.check_value", created=made, device=device, passed=counts.pop("pass"), **counts)]
    for each in results:
        code = f"provenance.check.{each['name']}"
        if each["state"] not in ("pass", "skipped"):
            facts = {"name": in_words(each["words"], language), "said": each["said"]}
            lines.append(say(language, "provenance.check_failed", **facts))
        elif each["state"] == "pass" and code in WORDS:  # else it measured nothing
            with contextlib.suppress(KeyError, ValueError, TypeError):  # of a version whose numbers are unknown here
                lines.append(say(language, code, **(each["facts"] or {})))
    return say(language, "list_semicolon").join(lines)


def _written_down(findings: Findings, registration: dict[str, Any], language: Language) -> Iterator[tuple[str, str]]:
    """What was fixed before the runs that it concerns: the declaration, and the values that tuning chose."""
    if registration:
        yield say(language, "provenance.registration"), _registered(registration, language)
    made = [choice.made for choice in findings.plan.choices.values()]
    if made and all(made) and not any(choice.final_runs_then for choice in findings.plan.choices.values()):
        value = say(language, "provenance.choices_value", made=min(each or "" for each in made))
        yield say(language, "provenance.choices"), value


def _registered(registration: dict[str, Any], language: Language) -> str:
    parts = [cautions.registration_text(registration, language)]
    if registration["standing"] in ("none", "damaged"):
        return parts[0]
    commit = numbers.digest(registration["commit"]) if registration["commit"] else say(language, "provenance.unknown")
    source = "registration.dirty_source" if registration["dirty"] else "registration.source"
    parts.append(say(language, source, commit=commit, version=registration["oelm"]))
    if not registration["changes"]:
        parts.append(say(language, "registration.unchanged"))
    if registration["later"]:
        times = say(language, "list_comma").join(each["registered"] for each in registration["later"])
        parts.append(say(language, "registration.later", times=times))
    return say(language, "list_semicolon").join([*parts, say(language, "registration.clocks")])


def _changes(registration: dict[str, Any], language: Language) -> Iterator[str]:
    found = registration.get("changes", [])
    for each in found[:LISTED_ROWS]:
        facts = {"key": each["key"], "then": value_text(each["registered"]), "now": value_text(each["now"])}
        yield say(language, "registration.change", **facts)
    if len(found) > LISTED_ROWS:
        yield say(language, "registration.more_changes", count=len(found) - LISTED_ROWS)


def _commit(entry: dict[str, Any], language: Language) -> str:
    code = "provenance.dirty_commit_value" if entry.get("dirty") else "provenance.commit_value"
    commit = numbers.digest(entry.get("commit")) if entry.get("commit") else say(language, "provenance.unknown")
    return say(language, code, commit=commit, runs=entry.get("runs"))


# ---- How to cite ---------------------------------------------------------------------------------------------------


def citation(findings: Findings, language: Language, figures: Container[str]) -> Iterator[Block]:
    yield Heading(say(language, "heading.cite"))
    if findings.study.cite:
        yield Paragraph(in_language(findings.study.cite, language))
    yield Paragraph(say(language, "cite.sentence"))
    digest = numbers.digest(findings.provenance.get("study_digest"))
    yield Code(
        "@software{oelm,\n"
        "  title   = {oelm: a laboratory for frozen parts of transformers},\n"
        "  author  = {{The oelm authors}},\n"
        f"  version = {{{oelm.__version__}}},\n"
        f"  note    = {{Study {findings.study.name}, digest {digest}}}\n"
        "}"
    )
