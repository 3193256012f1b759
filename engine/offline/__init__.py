"""Programs that read or make data without a learner: eval, sample, render, check, inspect."""
