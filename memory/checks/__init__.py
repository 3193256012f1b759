"""Checks that need a tool to run. The memory never runs a tool: it asks a service with a sandbox.

- runner.py: the interface of a runner, and the outcome of a run
- verdicts.py: whether a tool's first call works again, and whether two tools behave alike
- client.py: a tool service's create_and_execute as a runner
"""
