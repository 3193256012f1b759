"""Plays whole runs of the real engine on a virtual clock, with seeded faults.

`schedule` draws a run and its faults from a seed; `play` runs it and gives its history; `shrink`
makes a failing list of faults short; `command` is `bench simulate`. `loop` and `world` replace time
and chance; `sampler`, `tools`, `channel`, `journal_disk` and `learner` are the engine's neighbours.
"""
