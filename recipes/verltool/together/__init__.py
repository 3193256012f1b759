"""Two tasks in one run."""
