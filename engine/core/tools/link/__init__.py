"""The way to one process of a tool service: its channel, its stream of calls, its silence."""
