"""Where text meets token ids: tokenizer, chat template, cuts."""
