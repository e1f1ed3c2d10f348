"""Models of the transformers library: an arm applied to them, stored with them, and kept by their Trainer."""
