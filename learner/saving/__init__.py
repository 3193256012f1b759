"""Published policies and checkpoints of a run, complete or absent."""
