"""Rows of task files: lines and cells, messages, nulls, and why a row is refused."""
