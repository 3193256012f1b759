"""The connection to one process of a tool service: its channel, its stream of calls, its
liveness."""
