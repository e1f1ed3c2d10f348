"""What treatments cost or save in a step, as `oelm bench` measures it. The ratios come last.

    python benchmarks/treatments.py [--vocabulary 4096] [--batch-size 1] [--precision auto] [--most-rounds 60]

Medium-512 with one sequence of 512. Queries and keys without a matrix against the trained dense twin; a temperature per
head, rotary positions, a key shift and a residual of rank 4 against the baseline without them.
"""

from __future__ import annotations

from arms_in_blocks import Contender, can_decide, measured, options_of, ratio_text
from contender import sized
from oelm.core.accounting import training_flops_per_token

DENSE = "trained_orthogonal"
# Name -> the contender, and what is asked of its ratio to the trained dense twin.
TREATMENTS: dict[str, tuple[Contender, str]] = {
    "frozen_signed_permutation": (("frozen_signed_permutation", ()), "at most 0.92, aim 0.89"),
    "frozen_hadamard": (("frozen_hadamard", ()), "at most 0.92, aim 0.89"),
    "temperature per head": (("trained_orthogonal_temperature", ()), "at most 1.03"),
    "rotary positions": ((DENSE, ("model.positions=rotary",)), "at most 1.03"),
    "key shift": (("trained_orthogonal_shift", ()), "at most 1.03"),
    "residual of rank 4": (("trained_orthogonal_residual", ()), "at most 1.04"),
}


def main() -> None:
    options = options_of(__doc__, vocabulary=4096, batch_size=1)
    sizes = {"batch_size": options.batch_size, "vocabulary": options.vocabulary}
    contenders = {DENSE: (DENSE, ())} | {name: contender for name, (contender, _) in TREATMENTS.items()}
    bench = measured(contenders, DENSE, options)
    if not can_decide(bench) or bench.control is None:
        return
    products = {name: training_flops_per_token(sized(sizes, *each).model) for name, each in contenders.items()}
    print(f"control, {DENSE} / {DENSE}: {ratio_text(bench.control)}")
    for name, (_, aim) in TREATMENTS.items():
        ratio = bench.ratio(name, DENSE)
        if ratio is not None:
            arithmetic = f"products alone: {products[name] / products[DENSE]:.3f}"
            print(f"step, {name} / {DENSE}: {ratio_text(ratio)}; {aim}; {arithmetic}")


if __name__ == "__main__":
    main()
