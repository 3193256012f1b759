"""Errors of a recipe in one sentence, keys without effect, and names from elsewhere."""
