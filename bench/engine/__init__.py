"""`bench engine`: latency, makespan and CPU time of a real engine, on planned trajectories.

loads       what is played: a steady load, many trajectories at once, VerlTool's three workloads
plan        the tokens and times of each trajectory
sampler, sleeper, questions   the scripted sampler, the tool and the task source of the plans
playing     one run of the engine with its servers
bare        loops without tools and journal, which play the same plans
figures     latencies and shares from the stamps of a run
measure     a row of the report for each load
report      the rows as text and as a page

Every token is checked against its plan.
"""
