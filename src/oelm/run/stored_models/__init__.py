"""Stored models: read back, sampled from, exported."""
