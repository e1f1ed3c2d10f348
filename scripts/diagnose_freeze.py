"""The documents' diagnosis: is Q/K frozen, and does it stay so? docs/documents.md explains."""

from oelm.documents.diagnosis import diagnose_freeze

if __name__ == "__main__":
    diagnose_freeze()
