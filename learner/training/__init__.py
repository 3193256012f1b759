"""Training on a batch: rows, micro-batches, log-probs, loss, gradients, optimizer steps."""
