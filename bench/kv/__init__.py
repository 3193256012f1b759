"""`bench kv`: `engine.max_concurrent = "auto"` beside fixed limits, on a modelled GPU.

workloads.py  turns, tokens and tool times
playing.py    one run on a virtual clock
grid.py       all cells, and the best fixed limit of each in hindsight

The controller, its gate and the places are the engine's, the GPU is the scripted sampler's. Neither
HTTP nor a journal takes part: a run of hours takes seconds.
"""
