"""What one comparison is, which runs it wants, and which of them are there already. No torch."""
