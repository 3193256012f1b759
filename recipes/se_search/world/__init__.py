"""Toy world: a small encyclopedia."""
