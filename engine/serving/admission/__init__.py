"""Admission of trajectories: the training lane, its groups, and the arithmetic of places."""
