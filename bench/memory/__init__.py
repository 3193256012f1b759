"""`bench memory`: latency of the tool memory while tools come in.

generated.py   tools and subtasks of random words
measure.py     what is timed
command.py     the command, and the table that it prints
"""
