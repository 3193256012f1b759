"""The learner: trajectories in, better weights out.

The files tell the way of a step: lease -> batch -> step -> publish -> checkpoint. Text never
comes here: what is trained on are token ids with authors.
"""
