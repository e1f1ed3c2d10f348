"""The original diagnosis: is Q/K frozen, and does it stay so? docs/compat.md explains."""

from oelm.compat.diagnosis import diagnose_freeze

if __name__ == "__main__":
    diagnose_freeze()
