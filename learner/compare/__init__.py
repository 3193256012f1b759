"""Curves of several runs over each other, in one page: `learner compare`. Needs no torch."""
