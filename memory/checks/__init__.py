"""What only running a tool can tell. The memory never runs one: it asks whoever has a sandbox.

runner.py     who runs tools, and what comes of it
verdicts.py   what follows: a tool's own inputs pass again; two tools behave alike
client.py     a tool service's create_and_execute as a runner
"""
