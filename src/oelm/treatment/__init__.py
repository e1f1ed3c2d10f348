"""What can be done to a weight: where it stands (parts), how it starts (starts), when it moves (moves). No torch."""
