"""What limits a verdict: every reservation with its facts, in a few words and as a sentence, in both languages.

A reservation changes no outcome. It stands right beside it wherever the verdict is shown: box, card, table, text, JSON.
What takes a verdict away is a reason (oelm.claims.reasons).
"""

from __future__ import annotations

from dataclasses import dataclass

from oelm.claims.measures import Phrase


@dataclass(frozen=True)
class Reservation:
    facts: tuple[str, ...]
    short: Phrase  # beside the outcome in a table, without facts
    sentence: Phrase  # of the facts, and of `quality`, what the measure is called


RESERVATIONS: dict[str, Reservation] = {
    "carried_rates": Reservation(
        ("sizes",),
        ("at carried rates", "学习率为推得"),
        (
            "At carried rates: the tuned values at {sizes} follow from those of other sizes by a power law, and no "
            "tuning run checked them there.",
            "学习率为推得：{sizes} 的调优值按幂律由其他规模推得，未在这些规模上经调优运行检验。",
        ),
    ),
    "exploratory": Reservation(
        (),
        ("exploratory", "探索性"),
        ("Exploratory: not part of the adjusted family.", "探索性假设，不参与多重校正。"),
    ),
}
