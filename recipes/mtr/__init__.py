"""MTR: a model makes the tools of a question and plays them."""
