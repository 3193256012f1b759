"""A language model says whether a final answer is right."""
