"""Other experiment trackers, each through its own library: a row of table.py is all that the rest knows of one."""
