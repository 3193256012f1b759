"""Steps of a run: lease, train, publish, and at times a checkpoint."""
