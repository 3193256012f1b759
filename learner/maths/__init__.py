"""Formulas over batches and tokens: losses, KL, corrections, aggregation, learning rates, and
advantages that need a whole batch. Those of a group are in `toolwright.credit`.

Pure functions: nothing here knows a model, a batch or a process.
"""
