"""The documents' training script, first version: GPT, or OELM by one orthogonal matrix. docs/documents.md explains."""

from oelm.documents.training import train_v1

if __name__ == "__main__":
    train_v1()
