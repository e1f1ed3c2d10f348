"""Speed and peak memory of one training step at Medium-512, 8 x 512 tokens, against a plain GPT. Ratios come last.

    python benchmarks/step_speed.py [--rounds 5] [--vocabulary 50257]

The aims are for a CPU that multiplies bfloat16 in hardware (AVX-512); whether this one does is printed first. Where it
does not, oelm trains in float32, and the fast plain model is compiled in float32 too.
"""

from __future__ import annotations

import argparse

import torch

from interleaved import ratio_line, take_turns
from oelm.timing.ratios import paired

PLAIN, HUGGINGFACE, OURS = "plain eager float32", "huggingface eager float32", "oelm"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--only-plain", action="store_true", help="leave out Hugging Face and the compiled plain model")
    options = parser.parse_args()
    has_bfloat16 = torch.cpu._is_avx512_bf16_supported()
    capability = torch.backends.cpu.get_cpu_capability()
    print(f"CPU capability {capability}, bfloat16 in hardware: {'yes' if has_bfloat16 else 'no'}")
    compiled = "plain bfloat16 compiled" if has_bfloat16 else "plain float32 compiled"
    names = [PLAIN, OURS] if options.only_plain else [PLAIN, compiled, HUGGINGFACE, OURS]
    sizes = {"batch_size": options.batch_size, "vocabulary": options.vocabulary}
    done = take_turns(names, sizes, rounds=options.rounds)
    print()
    for name in names:
        print(f"peak memory, {name}: {done[name].peak_bytes / 2**20:,.0f} MiB")
    where = "on this kind of CPU" if has_bfloat16 else "where bfloat16 is in hardware, which it is not here"
    aims = {compiled: "at most 0.9, aim 0.8", PLAIN: "at most 0.46, aim 0.40"}
    memory = done[OURS].peak_bytes / done[PLAIN].peak_bytes
    if HUGGINGFACE in done:
        print(_line(done, HUGGINGFACE, PLAIN, "for reference"))
    print(f"peak memory, {OURS} / {PLAIN}: {memory:.3f}; aim: at most 0.5")
    for rival in (compiled, PLAIN):
        if rival in done:
            print(_line(done, OURS, rival, f"{aims[rival]} {where}"))


def _line(done: dict, numerator: str, denominator: str, aim: str) -> str:
    ratios = paired(done[numerator].seconds, done[denominator].seconds)
    return ratio_line(f"step, {numerator} / {denominator}", ratios, aim)


if __name__ == "__main__":
    main()
