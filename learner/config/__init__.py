"""The recipe's [learner] and [sft] tables, importable without torch."""
