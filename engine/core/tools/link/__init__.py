"""The connection to a tool service: its endpoints, their streams of calls, their liveness."""
