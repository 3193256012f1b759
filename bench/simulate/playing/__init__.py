"""One simulated run: the engine's lives, and the faults that are done to it."""
