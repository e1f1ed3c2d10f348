"""Speed and peak memory of one training step at Medium-512, 8 x 512 tokens, against a plain GPT. Ratios come last.

    python benchmarks/step_speed.py [--rounds 5] [--vocabulary 50257] [--float32]

The aims are for a CPU that multiplies bfloat16 in hardware (AVX-512); whether this one does is printed first. Where it
does not, or with --float32, oelm trains in float32, and the fast plain model is compiled in float32 too.
"""

from __future__ import annotations

import argparse

import torch

from interleaved import ratio_line, take_turns
from ratios import paired

PLAIN, HUGGINGFACE = "plain eager float32", "huggingface eager float32"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--only-plain", action="store_true", help="leave out Hugging Face and the compiled plain model")
    parser.add_argument("--float32", action="store_true", help="also where the CPU has bfloat16")
    options = parser.parse_args()
    has_bfloat16 = torch.cpu._is_avx512_bf16_supported()
    capability = torch.backends.cpu.get_cpu_capability()
    print(f"CPU capability {capability}, bfloat16 in hardware: {'yes' if has_bfloat16 else 'no'}")
    is_bfloat16 = has_bfloat16 and not options.float32
    compiled = "plain bfloat16 compiled" if is_bfloat16 else "plain float32 compiled"
    ours = "oelm float32" if options.float32 else "oelm"
    names = [PLAIN, ours] if options.only_plain else [PLAIN, compiled, HUGGINGFACE, ours]
    sizes = {"batch_size": options.batch_size, "vocabulary": options.vocabulary}
    done = take_turns(names, sizes, rounds=options.rounds)
    print()
    for name in names:
        print(f"peak memory, {name}: {done[name].peak_bytes / 2**20:,.0f} MiB")
    where = "on this kind of CPU" if has_bfloat16 else "where bfloat16 is in hardware, which it is not here"
    aims = {compiled: f"at most 0.9, aim 0.8 {where}", PLAIN: f"at most 0.46, aim 0.40 {where}"}
    if options.float32:
        aims = dict.fromkeys(aims, "aim 0.62")
    memory = done[ours].peak_bytes / done[PLAIN].peak_bytes
    if HUGGINGFACE in done:
        print(_line(done, HUGGINGFACE, PLAIN, "for reference"))
    print(f"peak memory, {ours} / {PLAIN}: {memory:.3f}; aim: at most 0.5")
    for rival in (compiled, PLAIN):
        if rival in done:
            print(_line(done, ours, rival, aims[rival]))


def _line(done: dict, numerator: str, denominator: str, aim: str) -> str:
    ratios = paired(done[numerator].seconds, done[denominator].seconds)
    return ratio_line(f"step, {numerator} / {denominator}", ratios, aim)


if __name__ == "__main__":
    main()
