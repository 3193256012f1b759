"""Imitation of the traces of a file: what is trained on, in which order, and what is held out."""
