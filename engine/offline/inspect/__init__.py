"""Reading a run's journal: inspect, replay, trace."""
