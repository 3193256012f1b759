"""Environments of the package `verifiers` as agents. `play.py` runs in an environment of its own,
which has that package and none of ours."""
