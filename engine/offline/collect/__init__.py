"""Trajectories without a learner, for `engine sample`.

`collector` rolls tasks out within a `budget`. `criteria`, `calls` and `selection` decide which
trajectories are kept. `messages` and `layouts` export them as chat messages. `store` and `shards`
own the files, and `report` shows progress and results.
"""
