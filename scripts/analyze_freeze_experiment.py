"""The original analysis: tables, hypotheses, figures. docs/compat.md explains."""

from oelm.compat.experiment import analysis
from oelm.study.catalogue import study_file

if __name__ == "__main__":
    analysis(study_file("qk_freeze"))
