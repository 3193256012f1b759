"""Any OpenAI-compatible endpoint as the sampler of an evaluation: text in, text out, no ids."""
