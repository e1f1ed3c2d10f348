"""Is what a run reports what its weights give? Recomputed from the last checkpoint and the data, as it was computed.

A seal shows accidents and edits; whoever forges a number can forge its digests too. The weights cannot be made to fit.
"""
