"""The original training script, first version: GPT, or OELM by one orthogonal matrix. docs/compat.md explains."""

from oelm.compat.training import train_v1

if __name__ == "__main__":
    train_v1()
