"""A process (or one of several, under torchrun) that trains one arm after another: starting torch is the slow part.

Arguments: token folder, output folder, precision, then names of arms, or of probes for the baseline.
"""

import sys
from pathlib import Path

from oelm.run.training import distributed
from oelm.run.training.distributed import joined, world_from_environment
from oelm.run.training.run import train
from small_runs import quiet_execution, small_run

if __name__ == "__main__":
    distributed.BUCKET_ELEMENTS = 2000  # fewer than some weights have, and more than others
    folder, out, precision, *arms = sys.argv[1:]
    with joined(world_from_environment(), device="cpu"):
        for arm in arms:
            named = ("trained", arm) if arm.startswith("probe:") else (arm, folder)
            run = small_run(named[0], data=named[1], batch_size=5)
            train(run, quiet_execution(precision=precision), out=Path(out) / arm)
