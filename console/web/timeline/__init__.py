"""The timeline of a step: where the time of its trajectories, the samplers and the learner went."""
