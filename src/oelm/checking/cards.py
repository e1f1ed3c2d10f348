"""What vendors promise of a GPU, from their data sheets: operations and bytes a second. No torch.

Peaks are of dense products: data sheets that name the figure with structured sparsity give twice as much. A row is
found by the name that the driver gives to a card.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    name: str
    marks: tuple[str, ...]  # words of the driver's name for it, all of them
    bfloat16_flops: float  # a second, tensor cores, sums in float32
    float32_flops: float  # a second, without TF32
    bytes_per_second: float
    memory_bytes: int
    source: str


CARDS = (
    Card("RTX A5000", ("RTX A5000",), 111.1e12, 27.8e12, 768e9, 24 * 2**30, "NVIDIA RTX A5000 data sheet"),
    Card("A100 80GB SXM", ("A100", "SXM", "80GB"), 312e12, 19.5e12, 2039e9, 80 * 2**30, "NVIDIA A100 data sheet"),
    Card("H100 SXM", ("H100", "HBM3"), 989.4e12, 66.9e12, 3350e9, 80 * 2**30, "NVIDIA H100 data sheet"),
)


OF_LAPTOPS = ("Laptop", "Max-Q")  # in names that are otherwise those of faster cards


def card_named(name: str | None) -> Card | None:
    """By the driver's name; None: a card of which this table has no figures, as are all those for laptops."""
    if not name or any(mark in name for mark in OF_LAPTOPS):
        return None
    return next((card for card in CARDS if all(mark in name for mark in card.marks)), None)


def peak_flops(card: Card, precision: str) -> float | None:
    return {"bfloat16": card.bfloat16_flops, "float32": card.float32_flops}.get(precision)
