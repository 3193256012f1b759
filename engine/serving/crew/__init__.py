"""Crews: roll out and score what lanes, suites and collections assign."""
