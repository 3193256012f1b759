"""The recipe's reward functions, and what they may return."""
