"""The original training script, second version: baseline, OELM by heads, or random. docs/compat.md explains."""

from oelm.compat.training import train_v2

if __name__ == "__main__":
    train_v2()
