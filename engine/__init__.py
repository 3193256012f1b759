"""The orchestrator: tasks in, trajectories out, new weights to the samplers.

The way of a trajectory, file by file: tasks -> scheduler -> toolclient -> protocols -> rollout
(with sampler/) -> rewards -> journal -> service. Imports without torch.
"""
