"""`memory:ADDRESS`: tools that agents made in earlier trajectories.

- source.py: the source on the command line
- client.py: the client of the memory
- plan_tool.py: the tool `plan`: recommends tools for a plan, and makes them callable
"""
