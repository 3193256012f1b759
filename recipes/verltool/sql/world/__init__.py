"""Toy world: three generated databases."""
