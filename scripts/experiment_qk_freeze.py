"""The original experiment controller: three groups, one study. docs/compat.md explains."""

from oelm.compat.experiment import experiment
from oelm.study.catalogue import study_file

if __name__ == "__main__":
    experiment(study_file("qk_freeze"))
