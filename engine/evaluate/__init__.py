"""Evaluation without training, for `engine eval`: `asked` says which questions, `folder` has the
files, `evaluator` asks with the machinery of the evaluation lane and `progress` tells people of it;
`rows` reads what is on disk, `scores` sums it up, `results` makes the figures, `table` and `page`
show them, `beside` lays them beside a paper's, and `compare` two evaluations beside each other."""
