"""The policy in training: ranks and device, a Hugging Face folder in and out, the optimizer."""
