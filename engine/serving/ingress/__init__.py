"""Outside agents: keys, hand-out of trajectories, and the gRPC edge of their model calls."""
