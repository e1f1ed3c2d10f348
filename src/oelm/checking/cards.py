"""What vendors promise of a GPU, from their data sheets: operations and bytes a second. No torch.

Peaks are of dense products. The data sheets of these cards print the figure with structured sparsity, alone or beside
it, which is twice as much; a row says what its source prints. A row is found by the name that the driver gives to a
card.
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
    source: str


CARDS = (
    # The sheet prints 222.2 TFLOPS of tensor performance, with sparsity. That half of it also holds for bfloat16 summed
    # in float32 follows from the architecture: the sheet of the A40, another workstation card of this chip (GA102),
    # prints four times its float32 figure for that, dense (149.7 to 37.4), as 111.1 is to 27.8 here.
    Card("RTX A5000", ("RTX A5000",), 111.1e12, 27.8e12, 768e9, "NVIDIA RTX A5000 data sheet"),
    # Prints both: 312, and 624 with sparsity. The card with 40 GB has the same peaks and 1,555 GB/s.
    Card("A100 80GB SXM", ("A100", "SXM", "80GB"), 312e12, 19.5e12, 2039e9, "NVIDIA A100 data sheet"),
    # The sheet prints 1,979 with sparsity; NVIDIA's description of the Hopper architecture 989.4 without.
    Card("H100 SXM", ("H100", "HBM3"), 989.4e12, 66.9e12, 3350e9, "NVIDIA H100 data sheet"),
)

OTHER_CARDS = ("Laptop", "Max-Q", "MIG")  # in names that are otherwise those of faster cards, or of whole ones


def card_named(name: str | None) -> Card | None:
    """By the driver's name; None: a card of which this table has no figures, as are those for laptops and slices."""
    if not name or any(mark in name for mark in OTHER_CARDS):
        return None
    return next((card for card in CARDS if all(mark in name for mark in card.marks)), None)


def peak_flops(card: Card, precision: str, *, tf32: bool = False) -> float | None:
    """None: not in this table, as the peak of products in TF32 is not."""
    if precision == "float32" and tf32:
        return None
    return {"bfloat16": card.bfloat16_flops, "float32": card.float32_flops}.get(precision)
