"""Toy world: figures of countries."""
