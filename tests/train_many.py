"""A process (or one of several, under torchrun) that trains one arm after another: starting torch is the slow part.

Arguments: token folder, output folder, precision, then names of arms.
"""

import sys
from pathlib import Path

from oelm.training.distributed import joined, world_from_environment
from oelm.training.run import train
from small_runs import quiet_execution, small_run

if __name__ == "__main__":
    folder, out, precision, *arms = sys.argv[1:]
    with joined(world_from_environment(), device_kind="cpu"):
        for arm in arms:
            run = small_run(arm, data=folder, batch_size=5)
            train(run, quiet_execution(precision=precision), out=Path(out) / arm)
