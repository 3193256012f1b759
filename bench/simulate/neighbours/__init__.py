"""Neighbours of the simulated engine: samplers, tool host, learner, and the journal's disk."""
