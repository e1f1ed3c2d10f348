"""Speed and peak memory of one training step at Medium-512, 8 x 512 tokens, against a plain GPT. Ratios come last.

    python benchmarks/step_speed.py [--rounds 5] [--vocabulary 50257]

The aims are for a CPU with AVX-512 and bfloat16; which arithmetic this machine has is printed first.
"""

from __future__ import annotations

import argparse

import torch

from interleaved import paired, ratio_line, take_turns

PLAIN, PLAIN_FAST, HUGGINGFACE, OURS = (
    "plain eager float32", "plain bfloat16 compiled", "huggingface eager float32", "oelm",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--skip", action="append", default=[], help="leave out a contender by name")
    options = parser.parse_args()
    fast = torch.cpu._is_avx512_bf16_supported()
    print(f"CPU capability {torch.backends.cpu.get_cpu_capability()}, bfloat16 in hardware: {'yes' if fast else 'no'}")
    names = [name for name in (PLAIN, PLAIN_FAST, HUGGINGFACE, OURS) if name not in options.skip]
    sizes = {"batch_size": options.batch_size, "vocabulary": options.vocabulary}
    done = take_turns(names, sizes, rounds=options.rounds)
    print()
    for name in names:
        print(f"peak memory, {name}: {done[name].peak_bytes / 2**20:,.0f} MiB")
    if HUGGINGFACE in done:
        print(
            ratio_line("huggingface / plain", paired(done[HUGGINGFACE].seconds, done[PLAIN].seconds), "for reference")
        )
    memory = done[OURS].peak_bytes / done[PLAIN].peak_bytes
    print(f"peak memory, oelm / plain eager float32: {memory:.3f}; aim: at most 0.5")
    if PLAIN_FAST in done:
        ratios = paired(done[OURS].seconds, done[PLAIN_FAST].seconds)
        print(ratio_line("step, oelm / plain bfloat16 compiled", ratios, "at most 0.9, aim 0.8 (AVX-512)"))
    ratios = paired(done[OURS].seconds, done[PLAIN].seconds)
    print(ratio_line("step, oelm / plain eager float32", ratios, "at most 0.46, aim 0.40 (AVX-512)"))


if __name__ == "__main__":
    main()
