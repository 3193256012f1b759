"""What two or more of Toolwright's processes share: contracts, record, recipe, rpc.

Nothing here imports engine, learner, toolsvc, memory or bench, and nothing here imports torch.
"""
