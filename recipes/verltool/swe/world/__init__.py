"""Toy world: ten repositories and scripted agents."""
