"""`memory:ADDRESS`: tools that agents made in earlier trajectories.

source.py      what the word means
client.py      the memory's answers
plan_tool.py   the tool `plan`: recommends tools for a plan, and makes them callable
"""
