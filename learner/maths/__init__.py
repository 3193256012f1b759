"""The formulas: rewards to advantages, log-probabilities to losses, steps to rates.

Pure functions; nothing here knows a model, a batch or a process.
"""
