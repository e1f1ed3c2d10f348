"""From stored runs to verdicts: results, curves, statistics, hypotheses. No torch, no formatting."""
