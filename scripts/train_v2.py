"""The documents' training script, second version: baseline, OELM by heads, or random. docs/documents.md explains."""

from oelm.documents.training import train_v2

if __name__ == "__main__":
    train_v2()
