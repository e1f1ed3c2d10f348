#!/bin/sh
# One task of a Slurm array. What it is given are words; no shell reads them again.
exec "$@"
