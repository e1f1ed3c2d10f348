"""The documents' commands in their own words: flags and names as printed there, translated into ours. No torch."""
