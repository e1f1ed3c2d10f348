"""The documents' analysis: tables, hypotheses, figures. docs/documents.md explains."""

from pathlib import Path

from oelm.documents.experiment import analysis

if __name__ == "__main__":
    analysis(Path(__file__).parent.parent / "studies" / "qk_freeze.yaml")
