"""HTTP: routes, keys, refusals, rewards and ends of trajectories, routes for drivers."""
