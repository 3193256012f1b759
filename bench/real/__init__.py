"""`python -m bench.real`: a small pretrained model, from a package registry to a trained policy.

The way of the data: wheel -> convert -> model -> the demonstration's course.
"""
