"""The formulas over batches and tokens: log-probabilities to losses, steps to rates, and the
advantages that more than a group takes (those of a group are `toolwright.credit`'s).

Pure functions; nothing here knows a model, a batch or a process.
"""
