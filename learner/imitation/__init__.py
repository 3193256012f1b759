"""Imitation of the traces of a file: training data, its order, and held-out data."""
