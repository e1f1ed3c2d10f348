"""One run: its directory, how it is trained, resumed and sealed, what its model says, whether the frozen rested."""
