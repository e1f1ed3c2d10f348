"""What a study can claim: by which measure, and of which kind. Tables of data and words; nothing here reads a run."""
