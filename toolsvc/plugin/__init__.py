"""What a tool is, and how it is run: all that a tool's author meets.

`tool` and `decorator` are what an author writes, `actions` how a tool finds its call in the
policy's text, of which `reading` makes arguments within `bounds`. `results` is what a tool answers,
`cancellation` how it is stopped, `waiting` what is no part of its run. `running` runs a tool's
methods for the host, and `faults` logs what they raise. `built_in` names the tools that come with
the service. Nothing here knows of leases or gRPC.
"""
