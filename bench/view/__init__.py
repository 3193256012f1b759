"""`bench view`: how quickly `toolwright view --web` answers over a run of many trajectories."""
