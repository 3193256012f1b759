"""How long many trajectories at once take beside the longest of them, and what each costs.

The same seeded plans are played twice against the scripted sampler: by a bare loop without tools
and journal, and by a real engine with a tool service in a process of its own. Every token is
checked against its plan.
"""
