"""`oelm check`: whether runs on this machine are repeatable, resumed exactly and fast, one line a check."""
