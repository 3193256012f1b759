"""Plays whole runs of the real engine on a virtual clock, with seeded faults.

`schedule` draws a run and its faults from a seed, and `workload` makes its recipe. `playing/` plays
it and gives its history. `verdict` judges the history, and `shrink` makes a failing list of faults
short. `campaign` plays many; `command` is `bench simulate`. `virtual/` replaces time and chance,
and `neighbours/` has the other parts of a run.

Real are the engine from `Engine.run` on with its journal in SQLite, the reader of the sampler's
stream, the tool host with its gRPC methods, and the learner's ledger. Scripted are time, chance,
threads, samplers, the network, the tool and the learner. A kill commits a random part of what the
journal had not written yet. Sockets, processes, images, publishing over a group and several tasks
are not played; `tests/chaos` kills real processes. `outside/` plays runs with outside agents.
"""
