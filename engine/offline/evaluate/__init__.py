"""Evaluation without training, for `engine eval`: `asked` says which questions, `folder` has the
files, `evaluator` asks with the machinery of the evaluation lane and `progress` tells people of it;
`results/` makes figures of what is on disk."""
