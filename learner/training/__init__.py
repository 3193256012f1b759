"""A step: trajectories to rows and micro-batches, log-probs, loss, gradients, better weights."""
