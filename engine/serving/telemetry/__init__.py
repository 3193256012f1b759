"""What the engine tells about itself: `metrics` of trajectories and `parts`, `progress` lines for
people, `logs`."""
