"""Toy world: drawn pictures."""
