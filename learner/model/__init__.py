"""The policy: a Hugging Face folder in and out, the network, the optimizer."""
