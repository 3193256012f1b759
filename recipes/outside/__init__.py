"""The calculator, played by a program of openai-agents."""
