"""Other names for arms -> ours. Empty here: the package enters the names that its rooms bring (oelm/__init__.py)."""

ALIASES: dict[str, str] = {}
