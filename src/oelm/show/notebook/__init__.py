"""Results for a notebook: pandas frames, and a study, a run and a verdict that show themselves."""
