"""Trajectories without a learner, for `engine sample`: `weights` looks at what the samplers serve,
`collect` rolls tasks out, `keep` and `choice` say which trajectories stay, `messages` tells them as
chat messages, `store` has the files."""
