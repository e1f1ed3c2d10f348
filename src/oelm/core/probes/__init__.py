"""Small tasks in which attention is everything, as data without files: tasks (a row per task)  probe (what a run names)
draws  generators (a function per task)  examples.

Every example is a pure function of the seed, the step and its place in the batch.
"""
