"""One version after the other: lease, train, publish; now and then a checkpoint."""
