"""Files that are whole or absent, locks that end with their process, and the shape of what is stored."""
