"""Several draws of what an arm treats, nested in its seed: which seed each of them has, and which draw a seed is of."""

from __future__ import annotations

from oelm.config import Seeds
from oelm.seeding import seed_of

MOST_DRAWS = 100
PROJECTIONS = "seeds.projections"  # the setting that a draw decides


def draw_seed(seed: int, draw: int) -> int:
    """The projections' seed of one draw of a seed.

    The first draw is the seed itself, so that the runs of a study without draws still count when it gets some. Every
    other one is 53 bits of a digest of both numbers: what any reader of JSON keeps exactly, and too many for two draws
    to meet.
    """
    return seed if draw == 0 else seed_of("draw", seed, draw) >> 10


def draw_of(seeds: Seeds) -> int | None:
    """Which draw of its seed a run is; None where its projections' seed is none of them."""
    return next((draw for draw in range(MOST_DRAWS) if draw_seed(seeds.weights, draw) == seeds.projections), None)
