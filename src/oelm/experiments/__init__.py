"""Running a study: engines that execute runs, and a controller that starts whatever is missing. No torch."""
