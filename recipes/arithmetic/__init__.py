"""Sums told in English: what `make real` trains on."""
