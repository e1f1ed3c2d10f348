"""Running a study: slots where runs execute, and a controller that starts whatever is missing. No torch."""
