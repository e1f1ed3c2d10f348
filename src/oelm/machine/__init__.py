"""The machine and its terminal: processors, memory, GPUs, what has run out, errors in one line. It imports no room."""
