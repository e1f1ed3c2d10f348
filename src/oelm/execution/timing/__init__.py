"""How long a step takes: arms by turns in one process, and a short probe of one run in a child process."""
