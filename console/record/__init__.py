"""What a run folder holds, read from its files alone."""
