"""Small tasks in which attention is everything, as data without files: tasks (a row per task)  probe (what a run names)
examples (a function per task, the draws behind them, and which example stands where).

Every example is a pure function of the seed, the step and its place in the batch.
"""
