"""The orchestrator: tasks in, trajectories out, new weights to the samplers.

The way of a trajectory, folder by folder: tasks -> lanes -> tools (sessions) -> protocols (prompt)
-> rollout (with sampler/ and tools/) -> rewards -> journal -> edge. Imports without torch.
"""
