"""The figures of a report, each a function from findings to a matplotlib figure, or to none where there is no data."""
