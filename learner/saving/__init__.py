"""What a run leaves on disk: published policies and checkpoints, whole or not at all."""
