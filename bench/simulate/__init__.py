"""Plays whole runs of the real engine on a virtual clock, with seeded faults.

`schedule` draws a run and its faults from a seed, and `workload` makes its recipe. `playing/` plays
it and gives its history; `verdict` judges that; `shrink` makes a failing list of faults short;
`campaign` plays many; `command` is `bench simulate`. `virtual/` replaces time and chance, and
`neighbours/` has the other parts of a run.
"""
