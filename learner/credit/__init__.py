"""Who earned what: rewards of the record to an advantage a token of the rows.

`earned` reads the record, `episode` compares trajectories, `turns` compares turns, `branches` evens
out what rollouts share, `assign` adds it all up. The formulas are in `learner.maths`.
"""
