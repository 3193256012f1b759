"""Toy world: a market of swapped goods."""
