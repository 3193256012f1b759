"""Evaluation without training, for `engine eval`.

`questions` selects them and `evaluator` runs them by the machinery of the evaluation lane. `folder`
owns the files, and `results/` makes figures from those.
"""
