"""`bench view`: latency of `toolwright view --web` over a run of many trajectories."""
