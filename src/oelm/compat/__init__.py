"""The original experiments under their own names: scripts, classes, flags, output files, prints (docs/compat.md).

"The originals" in this room are the plan and the four reports of February 2026 that the project grew out of. Nothing
outside it imports it but the package, which offers its names, and the command line.
"""
