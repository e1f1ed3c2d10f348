"""The small runs that these tests read."""

from trained_arms import stories, trained

__all__ = ["stories", "trained"]
