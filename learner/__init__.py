"""The learner: trajectories in, better weights out.

`run.py` and `sft.py` begin and end a run; `loop` has the steps of the one, `imitation` those of the
other. The rooms tell the way of a step: `intake` leases groups, `credit` gives their tokens
advantages, `training` makes rows and trains, `saving` publishes and writes checkpoints. `maths` has
the formulas, `model` the network. `check.py` compares a forward with transformers', `compare` lays
runs over each other. Text never comes here: what is trained on are token ids with authors.
"""
