"""The documents' experiment controller: three groups, one study. docs/documents.md explains."""

from pathlib import Path

from oelm.documents.experiment import experiment

if __name__ == "__main__":
    experiment(Path(__file__).parent.parent / "studies" / "qk_freeze.yaml")
