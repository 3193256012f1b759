"""Prompting methods that a trained agent has to beat."""
