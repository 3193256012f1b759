"""`bench engine`: latency, makespan and CPU time of a real engine, on planned trajectories.

loads.py     what is played
plan.py      tokens and times of each trajectory
processes/   what runs in processes of its own: sampler, tool, task source, loops
playing.py   one run of the engine, or of a loop, over all plans
figures.py   delays and shares from the stamps of a run
measure.py   a row of the report for each load
report.py    the rows as text and as a page

Every token is checked against its plan.
"""
