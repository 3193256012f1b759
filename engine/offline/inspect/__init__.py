"""Programs that read a run's journal: inspect, replay, trace."""
