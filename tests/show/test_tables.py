"""The files beside the report: every run and every arm, in numbers a program can read."""

import csv
import io
import math
import re

import pytest
from example_studies import example_study, findings_from

from oelm.show import tables, verdicts
from oelm.show.article import Table
from oelm.show.content import article_of


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_comparison_keeps_every_digit(complete):
    rows = {row["arm"]: row for row in rows_of(tables.comparison_csv(complete))}
    for arm, summary in complete.arms.items():
        assert float(rows[arm]["loss_mean"]) == summary.mean_loss
        assert float(rows[arm]["perplexity"]) == math.exp(summary.mean_loss)
        assert int(rows[arm]["frozen_parameters"]) == summary.frozen


def test_every_p_value_of_the_comparison_is_a_number(complete):
    rows = {row["arm"]: row for row in rows_of(tables.comparison_csv(complete))}
    shown = 0
    for arm, row in rows.items():
        found = dict(tables.adjusted_p(complete, arm))
        shown += len(found)
        only = next(iter(found.values())) if len(found) == 1 else None
        assert (float(row["p_adjusted"]) if row["p_adjusted"] else None) == only
        named = {key.removeprefix("p_adjusted_"): text for key, text in row.items() if key.startswith("p_adjusted_")}
        assert {name: float(text) for name, text in named.items() if text} == found
    assert shown


LATER = ("learning_rate", "time")  # a setting as configs write it; hours, minutes and seconds


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_column_has_one_number_of_decimals_and_one_unit(complete, partial, language):
    unlike = [tables.say(language, f"column.{name}") for name in LATER]
    checked = 0
    for findings in (complete, partial):
        blocks = article_of(findings, language, figures=()).blocks
        for table in [tables.whole_table(findings, language), *(each for each in blocks if isinstance(each, Table))]:
            for name, side, *cells in zip(table.header, table.align, *table.rows, strict=True):
                numbers_in = [
                    re.findall(r"\d[\d,]*(?:\.(\d+))?", cell) for cell in cells if "×" not in cell
                ]  # a ratio among differences
                decimals = {len(each) for cell in numbers_in for each in cell}
                units = {unit for cell in cells for unit in re.findall(r"\b(?:ms|s|[KMGT]iB|[MGTPEZ]FLOP)\b", cell)}
                if side == "right" and name not in unlike:
                    assert len(decimals) <= 1, (table.caption, name, cells)
                    assert len(units) <= 1, (table.caption, name, cells)
                    checked += len(decimals)
    assert checked > 20


def test_every_run_is_listed_with_its_state(partial):
    rows = rows_of(tables.runs_csv(partial))
    states = {(row["arm"], row["seed"]): row for row in rows if row["stage"] == "final"}
    assert len(states) == 12
    normal = "frozen_scaled_normal"
    assert [states[normal, seed]["state"] for seed in "0123"] == ["finished", "diverged", "failed", "missing"]
    assert states[normal, "2"]["error"] == "RuntimeError: something broke"
    assert states[normal, "3"]["val_loss"] == ""
    assert sum(row["stage"] == "tuning" for row in rows) == 9


def test_runs_that_wait_for_the_tuning_are_listed(tmp_path):
    findings = findings_from(
        example_study(), tmp_path, lambda arm, seed, stage, point: 2.0 if arm == "trained" else None
    )
    rows = rows_of(tables.runs_csv(findings))
    assert sum(row["stage"] == "final" and row["state"] == "missing" for row in rows) == 12


def test_a_diverged_run_counts_in_the_table(partial):
    row = next(row for row in rows_of(tables.comparison_csv(partial)) if row["arm"] == "frozen_scaled_normal")
    assert (row["seeds_finished"], row["seeds_planned"], row["diverged"]) == ("1", "4", "1")


def test_chinese_columns_are_aligned():
    text = tables.as_text(Table("", ["实验组", "n"], [["冻结", "1"], ["trained_long", "22"]], ["left", "right"]))
    assert text.splitlines() == ["实验组         n", "------------  --", "冻结           1", "trained_long  22"]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_validation_names_every_hypothesis_and_its_outcome(complete, language):
    text = verdicts.as_text(complete, language)
    for verdict in complete.verdicts:
        assert f"{verdict.hypothesis.name}  [{verdicts.outcome_in_short(verdict, language)}]" in text


def test_no_p_value_below_three_pairs(tmp_path):
    findings = findings_from(example_study(seeds=[0, 1]), tmp_path)
    text = verdicts.as_text(findings, "en")
    assert "too few to distinguish a difference from chance" in text


def test_seeds_in_a_row_are_shortened():
    assert verdicts.seed_list([0, 1, 2, 3, 7, 9, 8, 12], "en") == "0–3, 7–9, 12"
    assert verdicts.seed_list([4, 5], "en") == "4, 5"
