"""The learner: trajectories in, better weights out.

`run.py` is the loop, `sft.py` the imitation that may come before it. The rooms tell the way of a
step: `intake` leases groups, `training` makes rows of them and trains, `saving` publishes and
writes checkpoints. `maths` has the formulas, `model` the network. `worth.py` says why a step
teaches nothing, `check.py` compares a forward with transformers', `compare` lays runs over each
other. `imitation` has what `sft.py` needs beside these. Text never comes here: what is trained on
are token ids with authors.
"""
