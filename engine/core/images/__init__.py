"""Images in tasks, observations and requests."""
