"""`engine check`: whether a recipe can run, before it does."""
