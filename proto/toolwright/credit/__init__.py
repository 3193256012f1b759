"""The formulas by which rewards become advantages of trajectories and turns of one group.

The learner trains on them, and the viewer tells them of a recorded group. Those over whole batches
and tokens are the learner's own (`learner.maths`). Pure functions of Python numbers.
"""
