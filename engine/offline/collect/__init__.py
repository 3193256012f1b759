"""Trajectories without a learner, for `engine sample`: `weights` looks at what the samplers serve,
`collect` rolls tasks out within a `budget`, `keep`, `calls` and `choice` say which trajectories
stay, `messages` and `layouts` tell them as chat messages, `store` and `shards` have the files,
`told` is what people read."""
