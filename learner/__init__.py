"""The learner: trajectories in, better weights out.

`run.py` and `sft.py` begin and end a run; `loop` has the steps of `run`, `imitation` those of
`sft`. The packages follow a step: `intake` leases groups, `credit` gives their tokens advantages,
`training` makes rows and trains, `saving` publishes and writes checkpoints. `maths` has the
formulas, `model` the network. `check.py` compares a forward pass with that of transformers. The
learner never sees text: it trains on token ids with authors.
"""
