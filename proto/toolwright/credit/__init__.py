"""Credit assignment within a group, and the names of all methods that a recipe may choose.

`advantages` and `turns` compute advantages of trajectories and turns; the learner trains on them,
and the viewer shows them. `estimators`, `losses` and `corrections` are registries: names, defaults,
words. Formulas over whole batches and tensors are in `learner.maths`. Pure functions of Python
numbers.
"""
