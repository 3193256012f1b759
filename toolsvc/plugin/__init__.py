"""What a tool is, and how it runs: all that a tool's author meets.

`tool` and `decorator` are what an author writes. `actions` finds a call in the policy's text, and
`reading` makes its arguments. `executors` run a tool's calls for the host, `waiting` counts what a
call waits for others, `results` makes answers, and `faults` logs what tools raise. `registry` finds
the tools that packages register and makes them with their options. Nothing here knows leases or
gRPC.
"""
