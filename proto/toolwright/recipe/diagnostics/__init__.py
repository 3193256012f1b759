"""What is wrong with a recipe, which keys have no effect, and names from elsewhere."""
