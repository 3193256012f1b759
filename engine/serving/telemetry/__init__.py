"""The engine's reports about itself: `metrics` of trajectories and `parts`, `progress` lines for
people, `logs`."""
