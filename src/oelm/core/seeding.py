"""Everything random is a pure function: of a seed and a name, a step or an epoch."""

from __future__ import annotations

import hashlib


def seed_of(*parts: int | str) -> int:
    """63 bits that depend on all parts."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
