"""Toy world: a freight yard."""
