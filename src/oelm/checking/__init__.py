"""`oelm check`: whether this machine trains as promised, shown on the machine itself, one line a check."""
