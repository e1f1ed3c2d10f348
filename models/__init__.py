"""The original experiments' module paths, for code that imports from them in a clone (docs/compat.md)."""
