"""`python -m oelm`, also for torchrun: `torchrun --nproc-per-node 2 -m oelm train ...`."""

from oelm.cli import main

if __name__ == "__main__":
    main()
