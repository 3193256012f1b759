"""A folder to begin a run of your own from."""
