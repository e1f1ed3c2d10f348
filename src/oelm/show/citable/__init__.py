"""Every number of a report that a paper may cite, as a LaTeX macro: numbers.tex.

The numbers are those of the tables, rounded as they are there. What a study does not know yet has no macro, so that a
text that cites it does not compile. A measure is named without the words of show/macro_names.py.
"""
