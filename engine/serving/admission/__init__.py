"""Who may start: the training lane, the evaluation lane, and the arithmetic of places."""
