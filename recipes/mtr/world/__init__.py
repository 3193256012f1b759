"""Toy world: an encyclopedia that a scripted model plays tools for."""
