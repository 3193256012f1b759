"""Proof that the learner is right and fast on a GPU: `bench gpu`, or `python -m bench.gpu`."""
